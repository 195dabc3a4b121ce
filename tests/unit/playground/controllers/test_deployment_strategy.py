"""The arithmetic of rollouts stays within its bounds and gets where it is going."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.playground.controllers.deployment.strategy import (
    Bounds,
    Size,
    bounds_of,
    rolling_step,
    scaled_steps,
)


def deployment(replicas, surge="25%", unavailable="25%", kind="RollingUpdate"):
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    strategy = {"type": kind, **({"rollingUpdate": rolling} if kind == "RollingUpdate" else {})}
    return {"spec": {"replicas": replicas, "strategy": strategy}}


@pytest.mark.parametrize(
    ("given_spec", "expected"),
    [
        pytest.param(deployment(10), Bounds(10, 3, 2), id="surge rounds up, unavailable down"),
        pytest.param(deployment(1, 0, "25%"), Bounds(1, 0, 1), id="no room at all becomes one"),
        pytest.param(deployment(3, 1, 0), Bounds(3, 1, 0), id="plain numbers"),
        pytest.param(deployment(2, 0, 5), Bounds(2, 0, 2), id="no more unavailable than wanted"),
        pytest.param(deployment(4, kind="Recreate"), Bounds(4, 0, 0), id="recreate strays nowhere"),
    ],
)
def test_bounds_follow_the_strategy(given_spec, expected):
    assert bounds_of(given_spec) == expected


def size(name, replicas, available=None, age=0, before=None, wanted_before=None):
    return Size(
        name=name,
        replicas=replicas,
        available=replicas if available is None else available,
        age_rank=age,
        max_replicas_before=before,
        wanted_before=wanted_before,
    )


def test_the_new_set_grows_before_old_ones_shrink():
    assert rolling_step(Bounds(4, 1, 1), size("new", 0), [size("old", 4)]) == {"new": 1}


def test_pods_that_serve_no_traffic_go_first():
    steps = rolling_step(
        Bounds(4, 0, 1), size("new", 0), [size("broken", 2, available=0, age=1), size("good", 3)]
    )
    assert steps == {"broken": 0}


def test_pods_already_asked_to_go_are_not_counted_as_available():
    # The old set's status still shows 10, its spec is down to 8: two more would be too many.
    stale = size("old", 8, available=10)
    steps = rolling_step(Bounds(10, 2, 2), size("new", 4, available=2), [stale])
    assert steps == {"old": 6}


@pytest.mark.parametrize(
    ("wanted", "new", "old", "expected"),
    [
        pytest.param(7, None, [size("old", 3)], {"old": 7}, id="the only active set takes it all"),
        pytest.param(5, size("new", 0), [], {"new": 5}, id="without pods the new set takes it all"),
        pytest.param(
            20,
            size("new", 5, before=13, age=1),
            [size("old", 8, before=13)],
            {"old": 15, "new": 10},
            id="two sets grow in proportion",
        ),
        pytest.param(
            5,
            size("new", 5, before=13, age=1),
            [size("old", 8, before=13)],
            {"old": 4, "new": 3},
            id="two sets shrink in proportion",
        ),
        pytest.param(
            0,
            size("new", 5, before=13, age=1),
            [size("old", 8, before=13)],
            {"old": 0, "new": 0},
            id="nothing wanted, nothing left",
        ),
        pytest.param(
            5,
            size("new", 5, wanted_before=5),
            [size("old", 2)],
            {"old": 0},
            id="a finished rollout drops the old",
        ),
    ],
)
def test_scaling_in_the_middle_of_a_rollout(wanted, new, old, expected):
    bounds = bounds_of(deployment(wanted))
    assert scaled_steps(bounds, new, old, rolling=True) == expected


def test_recreate_is_not_scaled_in_proportion():
    sets = [size("old", 2, before=4)]
    assert scaled_steps(Bounds(8, 0, 0), size("new", 2, before=4), sets, rolling=False) == {}


@given(
    wanted=st.integers(0, 20),
    surge=st.integers(0, 5),
    unavailable=st.integers(0, 5),
    sizes=st.lists(st.tuples(st.integers(0, 20), st.floats(0, 1)), min_size=1, max_size=4),
    chances=st.randoms(use_true_random=False),
)
def test_a_rollout_ends_and_never_leaves_its_bounds(wanted, surge, unavailable, sizes, chances):
    if surge == 0 and unavailable == 0:
        unavailable = 1
    bounds = Bounds(wanted, surge, min(unavailable, wanted))
    replicas = [count for count, _ in sizes]
    available = [int(count * share) for count, share in sizes]
    start_total = sum(replicas)
    last = len(replicas) - 1
    for _ in range(400):
        everyone = [
            Size(name=str(i), replicas=replicas[i], available=available[i], age_rank=i)
            for i in range(len(replicas))
        ]
        could_serve = sum(min(a, r) for a, r in zip(available, replicas, strict=True))
        steps = rolling_step(bounds, everyone[last], everyone[:last])
        for name, count in steps.items():
            assert count >= 0
            replicas[int(name)] = count
        assert sum(replicas) <= max(start_total, bounds.most)
        serves = sum(min(a, r) for a, r in zip(available, replicas, strict=True))
        assert serves >= min(could_serve, bounds.min_available)
        if not steps:
            if replicas[last] == wanted and not any(replicas[:last]):
                return
            # Nothing may move until pods become available: let one of them.
            waiting = [i for i in range(len(replicas)) if available[i] < replicas[i]]
            assert waiting or any(a > r for a, r in zip(available, replicas, strict=True))
            if waiting:
                available[chances.choice(waiting)] += 1
        available = [min(a, r) for a, r in zip(available, replicas, strict=True)]
    raise AssertionError(f"no end: {replicas} of {bounds}")
