"""How many workers run the tests and in which order, what they need not collect as garbage, and how
Hypothesis draws.

Hypothesis draws the same examples every time, so that a landing does not depend on luck;
`KUBESCHED_EXPLORE=1` draws new ones, which is how counterexamples are looked for.
`KUBESCHED_FUZZ_EXAMPLES` sets how many a test draws that does not say so itself.
"""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

# It would draw constants of the imported modules, too, which depend on what a worker ran before.
providers._get_local_constants = providers.Constants

# A busy machine must not fail a test: no deadlines, and drawing examples may take its time.
CLOCKS = [HealthCheck.too_slow]
EXAMPLES = int(os.environ.get("KUBESCHED_FUZZ_EXAMPLES", "100"))
settings.register_profile(
    "fixed",
    derandomize=True,
    deadline=None,
    max_examples=EXAMPLES,
    suppress_health_check=CLOCKS,
)
settings.register_profile(
    "explore",
    deadline=None,
    max_examples=EXAMPLES,
    print_blob=True,
    suppress_health_check=CLOCKS,
)
settings.load_profile("explore" if os.environ.get("KUBESCHED_EXPLORE") else "fixed")


@given(st.none())
def draw_first_example(_: None) -> None:
    """With its first example Hypothesis looks for what refers to its random numbers.

    It would not find that among frozen objects, and warn.
    """


WORKERS_PER_CORE = 2
"""Workers wait for processes, sockets and timers about half of the time."""


def pytest_xdist_auto_num_workers() -> int:
    return WORKERS_PER_CORE * len(os.sched_getaffinity(0))


SHORT = ("tests/unit/", "plugins/tests/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let every worker begin with its share of the modules whose tests are long.

    A worker begins with an equal part of the list, and steals from the others' ends when it has
    none left: what is long and comes last would be waited for. Every second worker takes its long
    modules from the other end, so that some calculate (simulation) while others wait for processes
    (integration).
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    modules = [[*tests] for _, tests in itertools.groupby(items, key=lambda item: item.path)]
    long = [tests for tests in modules if not tests[0].nodeid.startswith(SHORT)]
    parts = [long[worker::workers][:: -1 if worker % 2 else 1] for worker in range(workers)]
    dealt = [[*itertools.chain.from_iterable(part)] for part in parts]
    for tests in modules:
        if tests[0].nodeid.startswith(SHORT):
            min(dealt, key=len).extend(tests)
    items[:] = itertools.chain.from_iterable(dealt)


COLLECTOR = (2_000, 10, 100)
"""Thresholds of the garbage collector while tests run: everything is traversed ten times as rarely.

Nearly all that a test allocates is freed by reference counting, but caches and reports stay, and
with CPython's thresholds a fifth of a worker's CPU time went into traversing them.
"""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector off what stays to the end.

    Ten thousand tests are some 400,000 objects, which take 0.3 s to traverse.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        draw_first_example()
        gc.freeze()
        gc.set_threshold(*COLLECTOR)
        gc.enable()
