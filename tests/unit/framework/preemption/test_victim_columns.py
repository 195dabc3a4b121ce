"""Victims found for many nodes at once are those found node by node.

Random small clusters: several priorities, start times, budgets, nominated pods, ports, scalar
resources. Both ways must give the same candidates with the same victims in the same order, the same
verdicts elsewhere, and the same choice. What the choice is good for is proven in
test_preemption_properties.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_victims import GPU, random_world

from kubesched.framework.node_statuses import NodeStatusColumns
from kubesched.framework.nodes import priorities as priorities_module
from kubesched.framework.preemption.candidates import best_of
from kubesched.framework.preemption.dry_run import DryRun
from kubesched.framework.preemption.evaluator import errors_among
from kubesched.testing import make_pod


def random_preemptor(rng: Random):
    pod = make_pod("preemptor").priority(rng.choice([0, 5, 9])).cpu(rng.choice(["500m", "1", "2"]))
    if rng.random() < 0.3:
        pod.memory("4Gi")
    if rng.random() < 0.3:
        pod.request(GPU, 1)
    if rng.random() < 0.4:
        pod.host_port(80, ip=rng.choice(["", "10.0.0.1"]))
    return pod.build()


def outcome_of(found):
    """Everything a dry run says, in comparable form."""
    if isinstance(found, NodeStatusColumns):
        verdicts = {
            name: (status.code, status.reasons, status.plugin)
            for name, status in found.explicit.items()
        }
        return verdicts, [str(error) for error in errors_among(found)]
    candidates = [
        (c.node_name, [pod.metadata.name for pod in c.victims.pods], c.victims.pdb_violations)
        for c in found.candidates()
    ]
    return candidates, best_of(found).node_name, found.criteria.tolist()


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32))
@pytest.mark.parametrize("limit", [64, 0], ids=["sums by priority", "too many priorities"])
def test_columns_and_single_nodes_agree(world_type, limit: int, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(priorities_module, "PRIORITY_LIMIT", limit)
        compare(world_type, seed)


def compare(world_type, seed: int) -> None:
    rng = Random(
        seed
    )  # drawn values would be small and alike; here variety matters more than shrinking
    world = random_world(world_type, rng)
    preemptor = world.preemptor(random_preemptor(rng))
    rows = world.table.order_rows.astype(np.intp)
    wanted = rng.choice([1, 2, len(rows)])
    budgets = world.plugin.evaluator.budgets.list()
    found = DryRun(preemptor, budgets).find(rows, wanted)
    expected = DryRun(preemptor, budgets, together=False).find(rows, wanted)
    assert outcome_of(found) == outcome_of(expected)
