"""The learned policy of the examples: from a network to a plugin, checked, compared, as a shadow,
promoted.

The shadow and the promotion are console blocks of its page
(tests/integration/test_console_blocks.py). Training needs torch; everything else here runs without
it, with a small network that the test makes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kubesched as ks
from kubesched.testing import Cluster, check_plugin, make_node, make_pod

POLICY = Path(__file__).parents[3] / "examples/policy"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(POLICY)


@pytest.fixture
def weights(tmp_path: Path) -> str:
    """A network that prefers used nodes and, among those, the fuller ones."""
    from learned_policy import Network

    resources = ("cpu", "memory", "nvidia.com/gpu")
    first = np.array([[-1.0, -1.0, 0.0, 2.0, 0.0, 0.0, 0.0]])
    layers = ((first, np.zeros(1)), (np.ones((1, 1)), np.zeros(1)))
    path = tmp_path / "weights.json"
    Network(resources, np.array([16_000, 128 << 30, 4]), layers).save(path)
    return str(path)


@pytest.mark.parametrize("trained", [True, False])
def test_the_plugin_keeps_its_promises(weights: str, trained: bool) -> None:
    from learned_policy import LearnedPolicy

    path = str(POLICY / "weights.json") if trained else weights
    check_plugin(LearnedPolicy, {"weights": path}, examples=20)


def test_the_plugin_decides_as_the_network_does(weights: str) -> None:
    from evaluate import ALONE
    from learned_policy import LearnedPolicy

    config = ALONE.format(name="LearnedPolicy", args=f"{{weights: {weights}}}")
    with Cluster(config=config, plugins=[LearnedPolicy]) as world:
        for name in ("a", "b", "c"):
            world.add(make_node(name).build())
        world.add(make_pod("there").cpu("1").on("b").build())
        for number in range(3):
            world.add(make_pod(f"p{number}").cpu("1").build())
        world.settle()
        assert {world.node_of(f"p{number}") for number in range(3)} == {"b"}


def test_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    from learned_policy import Network

    path = tmp_path / "weights.json"
    path.write_text('{"resources": ["cpu"], "largest": [1], "layers": [[[[1, 2]], [0]]]}')
    with pytest.raises(ValueError, match=r"weights.json: a layer of \(1, 2\) where 3 come in"):
        Network.load(path)
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"weights.json: KeyError"):
        Network.load(path)


@pytest.mark.slow
def test_it_is_evaluated_beside_the_default(weights: str) -> None:
    from evaluate import evaluated, lines

    def trace(seed: int) -> object:
        return ks.sample_trace(nodes=8, pods=60, hours=2, seed=seed)

    compared = evaluated(weights, seeds=2, trace=trace)
    used = {
        row["config"]: row["mean"]
        for row in compared.differences.rows()
        if row["figure"] == "nodesUsed"
    }
    assert used["learned"] < 0
    assert "nodesUsed" in "\n".join(lines(compared))


@pytest.mark.slow
def test_it_is_trained(tmp_path: Path) -> None:
    """A few steps: a network comes of it that the plugin can use and that differs from the
    first.
    """
    pytest.importorskip("torch", reason="training needs torch")
    pytest.importorskip("sb3_contrib", reason="training needs stable-baselines3 and sb3-contrib")
    from learned_policy import LearnedPolicy, Network
    from train import train

    def trace(seed: int) -> object:
        return ks.sample_trace(nodes=6, pods=40, hours=2, seed=seed)

    short = train(steps=2048, trace=trace)
    longer = train(steps=4096, trace=trace)
    assert any(
        not np.allclose(a, b) for (a, _), (b, _) in zip(short.layers, longer.layers, strict=True)
    )
    path = tmp_path / "weights.json"
    longer.save(path)
    assert Network.load(path).resources == ("cpu", "memory")
    check_plugin(LearnedPolicy, {"weights": str(path)}, examples=5)
