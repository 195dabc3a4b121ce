"""Gymnasium environments: exact masks, episodes that repeat, rewards, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sweep_work import first_feasible

import kubesched as ks
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.nodes.pods import PodInfo

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env  # noqa: E402  # after the line above

from kubesched.gym import PlacementEnv, WeightsEnv, evaluate, pod_of  # noqa: E402  # as above

TRACE = ks.sample_trace(nodes=12, pods=120, hours=2)
OPENB = Path(__file__).parents[4] / "examples/traces/openb"


def played(env: PlacementEnv, seed: int) -> tuple[list[int], list[float], dict[str, Any]]:
    """Actions, rewards and the last info of a random policy."""
    draw = np.random.default_rng(seed)
    _, info = env.reset(seed=seed)
    actions, rewards, is_over = list[int](), list[float](), False
    while not is_over:
        actions.append(int(draw.choice(np.flatnonzero(info["action_mask"]))))
        _, reward, is_over, _, info = env.step(actions[-1])
        rewards.append(reward)
    return actions, rewards, info


@pytest.mark.parametrize("name", ["Placement", "Weights"])
def test_gymnasium_finds_and_accepts_them(name: str) -> None:
    env = gymnasium.make(f"kubesched/{name}-v0", trace=TRACE)
    check_env(env.unwrapped)
    env.close()


def test_a_mask_is_what_a_full_evaluation_finds() -> None:
    env = PlacementEnv(TRACE)
    _, info = env.reset(seed=5)
    is_over, steps = False, 0
    while not is_over:
        algorithm, framework = env._algorithm, env._framework
        engine, algorithm.engine = algorithm.engine, None
        plain = algorithm.feasible(framework, CycleState(), PodInfo(pod_of(env)))
        algorithm.engine = engine
        assert info["action_mask"].tolist() == plain.tolist()
        _, _, is_over, _, info = env.step(int(env.action_space.sample()))
        steps += 1
    assert steps + info["waiting"] == 120
    env.close()


def test_the_same_seed_is_the_same_episode() -> None:
    env = PlacementEnv()
    first, again, other = played(env, 1), played(env, 1), played(env, 2)
    assert first[:2] == again[:2]
    assert first[0] != other[0]
    env.close()


def test_features_are_chosen_and_within_bounds() -> None:
    env = PlacementEnv(TRACE, features=("pods", "free"))
    observation, _ = env.reset(seed=1)
    assert env.node_features == ["pods", "free cpu", "free memory", "free nvidia.com/gpu"]
    assert observation["nodes"].shape == (12, 4)
    row = int(np.flatnonzero(env.action_masks())[0])
    after, *_ = env.step(row)
    assert after["nodes"][row, 1] < observation["nodes"][row, 1]
    assert np.all(observation["nodes"] == 1.0) or observation["nodes"].max() <= 1.0
    env.close()


def test_rewards() -> None:
    for reward in ("packing", "fragmentation", "waits", "cost"):
        env = PlacementEnv(TRACE, reward=reward)
        _, rewards, info = played(env, 3)
        if reward == "packing":
            assert -sum(rewards) >= info["nodes_used"]
        if reward in ("waits", "cost"):
            assert max(rewards) <= 0.0
        assert any(rewards) or reward == "waits"
        env.close()
    env = PlacementEnv(TRACE, reward=lambda env: float(env.placed))
    _, rewards, _ = played(env, 3)
    assert rewards == [float(number) for number in range(1, len(rewards) + 1)]
    env.close()


def test_shared_gpus_have_the_published_measure() -> None:
    env = PlacementEnv(str(OPENB), reward="fragmentation")
    _, rewards, info = played(env, 1)
    assert info["placed"] == len(rewards)
    assert sum(rewards) == pytest.approx(env._fragmentation() * -1, abs=1.0)
    env.close()


def test_weights_choose_by_the_scores() -> None:
    env = WeightsEnv(TRACE)
    assert "NodeResourcesFit" in env.score_plugins
    env.reset(seed=1)
    weights = np.array([name == "NodeResourcesFit" for name in env.score_plugins], dtype=np.float32)
    _, _, _, _, info = env.step(weights)
    assert info["placed"] == 1
    with pytest.raises(ks.InputError, match="weights from 0 to 1 are needed"):
        env.step(weights * 2)
    env.close()


def test_wrong_input_is_named() -> None:
    with pytest.raises(ks.InputError, match="reward 'speed': there are cost, fragmentation"):
        PlacementEnv(TRACE, reward="speed")
    with pytest.raises(ks.InputError, match="'shape' is none of free, used, pods"):
        PlacementEnv(TRACE, features=("shape",))
    env = PlacementEnv(ks.sample_trace(nodes=10, pods=400, hours=1))
    env.reset(seed=1)
    while env.action_masks().all():
        env.step(0)
    row = int(np.flatnonzero(~env.action_masks())[0])
    with pytest.raises(ks.InputError, match=f"node node-000{row} does not take pod trace/"):
        env.step(row)
    with pytest.raises(ks.InputError, match="action 10: node 10 does not take"):
        env.step(10)
    env.close()


def raising(name: str) -> Any:
    """A plugin that raises at an extension point."""
    from kubesched.framework import FilterPlugin, ScorePlugin

    def fails(*_: object) -> None:
        raise LookupError("no such rack")

    base = {"filter": FilterPlugin, "score": ScorePlugin}[name]
    return type("Raises", (base,), {"name": "Raises", name: fails})


RAISES = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: Raises}]}}
"""


@pytest.mark.parametrize(("point", "env"), [("filter", PlacementEnv), ("score", WeightsEnv)])
def test_a_plugin_that_raises_is_named(point: str, env: type[PlacementEnv]) -> None:
    made = env(TRACE, config=RAISES, plugins=[raising(point)])

    def begun() -> None:
        made.reset(seed=1)
        made.step(np.ones(len(made._framework.score)))

    with pytest.raises(ks.InputError, match=r"pod trace/.*LookupError: no such rack"):
        begun()
    made.close()


@pytest.mark.parametrize(
    ("env", "action", "says"),
    [
        (PlacementEnv, "x", "1 numbers of type int64 are needed"),
        (PlacementEnv, float("nan"), "1 numbers of type int64 are needed"),
        (PlacementEnv, [1, 2], "1 numbers of type int64 are needed"),
        (WeightsEnv, "abc", "9 numbers of type float64 are needed"),
        (WeightsEnv, [float("nan")] * 9, "9 weights from 0 to 1"),
    ],
)
def test_actions_of_another_kind_are_refused(
    env: type[PlacementEnv], action: object, says: str
) -> None:
    made = env(TRACE)
    with pytest.raises(ks.InputError, match="no pod is at hand; reset begins"):
        made.step(0)
    made.reset(seed=1)
    with pytest.raises(ks.InputError, match=says):
        made.step(action)
    made.close()


def test_wrong_traces_and_rewards_are_named() -> None:
    with pytest.raises(ks.InputError, match="trace: 3 is no trace"):
        PlacementEnv(3)  # type: ignore[arg-type]
    with pytest.raises(ks.InputError, match="trace: None is no trace"):
        PlacementEnv(lambda seed: None)  # type: ignore[arg-type, return-value]
    env = PlacementEnv(TRACE, reward=lambda env: None)  # type: ignore[arg-type, return-value]
    env.reset(seed=1)
    with pytest.raises(ks.InputError, match="reward: None is no number"):
        env.step(int(env.action_space.sample()))
    env.close()


def test_episodes_are_played_for_every_seed() -> None:
    here = evaluate(first_feasible, TRACE, seeds=[3, 5])
    assert list(here["seed"]) == [3, 5]
    assert list(here["steps"]) == [120, 120]
    assert all(reward < 0 for reward in here["reward"])
    with pytest.raises(ks.KubeschedError, match="seed 0: action 99: node 99 does not take"):
        evaluate(lambda observation, mask: 99, TRACE, seeds=1)
    with pytest.raises(ks.KubeschedError, match="names that they can import"):
        evaluate(lambda observation, mask: 0, TRACE, seeds=2, executor="local:2")
    with pytest.raises(ks.InputError, match="executor 'remote' is none of"):
        evaluate(first_feasible, TRACE, executor="remote")


@pytest.mark.slow
def test_episodes_on_other_processes_are_the_same() -> None:
    there = evaluate(first_feasible, TRACE, seeds=2, executor="local:2")
    assert list(there.rows()) == list(evaluate(first_feasible, TRACE, seeds=2).rows())


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_environments_are_vectorised(mode: str) -> None:
    envs = gymnasium.make_vec(
        "kubesched/Placement-v0", num_envs=2, vectorization_mode=mode, trace=TRACE
    )
    observation, info = envs.reset(seed=[1, 2])
    assert observation["nodes"].shape == (2, 12, 4)
    actions = [first_feasible(None, mask) for mask in info["action_mask"]]
    _, rewards, *_ = envs.step(np.array(actions))
    assert rewards.tolist() == [-1.0, -1.0]
    envs.close()
