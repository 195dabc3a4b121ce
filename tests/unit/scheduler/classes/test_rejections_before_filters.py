"""A pod that PreFilter rejects fails the same way whether or not the answers of its class are
kept.
"""

from __future__ import annotations

import pytest
from msgspec import structs
from storage_objects import claim, volume

from kubesched.api.core_v1 import PersistentVolumeClaim
from kubesched.insight.state.cluster import Cluster
from kubesched.testing import make_node, make_pod


def _message(*, classes: bool) -> str:
    """What is said of a pod whose claim is being deleted, after a pod like it was tried."""
    with Cluster([make_node("n").capacity(cpu="4", pods=10).build()], classes=classes) as cluster:
        cluster.add(volume("v", claim="c"), claim("c", volume="v"))
        cluster.add(*(make_pod(name).cpu("8").claim("c").build() for name in ("first", "second")))
        cluster.settle()
        found = cluster.find(PersistentVolumeClaim, "default", "c")
        assert found is not None
        meta = structs.replace(found.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
        cluster.update(structs.replace(found, metadata=meta))
        cluster.run(400.0)
        condition = cluster.condition("second")
        assert condition is not None
        return condition[1]


@pytest.mark.parametrize("classes", [True, False])
def test_plugins_behind_the_one_that_rejects_do_not_run(classes: bool) -> None:
    said = _message(classes=classes)
    assert "being deleted" in said
    # Upstream: PostFilter of DynamicResources does not find what its PreFilter did not write.
    assert said.endswith("not found")
