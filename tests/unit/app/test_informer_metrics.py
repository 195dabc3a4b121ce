"""What client-go reports about informers, under the same names: T50 of kube-scheduler 1.37."""

from __future__ import annotations

from random import Random

import pytest

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.storage_v1 import StorageClass
from kubesched.api.watch import WatchEvent
from kubesched.app.process_metrics import register_informers
from kubesched.base.clock import ManualClock
from kubesched.base.metrics import MetricsRegistry
from kubesched.client.informers.factory import InformerFactory
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.load import default_config
from kubesched.framework.profile import enabled_plugins
from kubesched.insight.state.watching import ask_for_informers
from kubesched.plugins.registry import in_tree_registry
from kubesched.testing import make_node

GROUPS = {
    "": "namespaces nodes persistentvolumeclaims persistentvolumes pods replicationcontrollers "
    "services",
    "apps": "replicasets statefulsets",
    "policy": "poddisruptionbudgets",
    "resource.k8s.io": "deviceclasss devicetaintrules resourceclaims resourceslices",
    "storage.k8s.io": "csidrivers csinodes csistoragecapacitys storageclasss volumeattachments",
}


def factory() -> InformerFactory:
    return InformerFactory(None, clock=ManualClock(), random=Random(1))  # type: ignore[arg-type]


def listed(registry: MetricsRegistry, name: str) -> dict[tuple[str, ...], float]:
    (family,) = (family for family in registry.families() if family.name == name)
    return {labels: cell.current() for labels, cell in family.cells().items()}


async def test_one_series_per_informer_under_its_misspelt_plural() -> None:
    informers, registry = factory(), MetricsRegistry()
    ask_for_informers(
        informers, enabled_plugins(default_config(DEFAULT_GATES), in_tree_registry()), DEFAULT_GATES
    )
    register_informers(registry, informers)
    expected = {
        ("kube-scheduler", group, "v1", resource)
        for group, resources in GROUPS.items()
        for resource in resources.split()
    }
    queued = listed(registry, "informer_queued_items")
    assert set(queued) == expected
    assert len(expected) == 19
    assert set(queued.values()) == {0}


async def test_without_1_37_there_are_none() -> None:
    informers, registry = factory(), MetricsRegistry()
    informers.informer(Pod)
    register_informers(registry, informers, as_upstream=False)
    assert "informer_queued_items" not in registry.text()


@pytest.mark.parametrize(
    ("revision", "shown"), [("", 0), ("42", 42), ("1234567890123456789", 567890123456789)]
)
async def test_the_last_digits_of_the_revision(revision: str, shown: int) -> None:
    informers, registry = factory(), MetricsRegistry()
    informers.informer(StorageClass).reflector.resource_version = revision
    register_informers(registry, informers)
    labels = ("kube-scheduler", "storage.k8s.io", "v1", "storageclasss")
    assert listed(registry, "informer_store_resource_version") == {labels: shown}


async def test_changes_are_timed() -> None:
    informers, registry = factory(), MetricsRegistry()
    informer = informers.informer(Node)
    register_informers(registry, informers)
    informer.apply(WatchEvent("ADDED", make_node("a").build()))
    assert 'informer_processing_latency_seconds_count{name="kube-scheduler",group="",' in (
        registry.text()
    )
    (count,) = (
        line.rpartition(" ")[2]
        for line in registry.text().splitlines()
        if line.startswith("informer_processing_latency_seconds_count")
    )
    assert count == "1"
