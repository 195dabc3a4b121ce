"""Gymnasium environments: exact masks, episodes that repeat, rewards, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kubesched as ks
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.nodes.pods import PodInfo

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env  # noqa: E402  # after the line above

from kubesched.gym import PlacementEnv, WeightsEnv, pod_of  # noqa: E402  # as above

TRACE = ks.sample_trace(nodes=12, pods=120, hours=2)
OPENB = Path(__file__).parents[3] / "examples/traces/openb"


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
