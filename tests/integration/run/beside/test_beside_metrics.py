"""Every metric of a real kube-scheduler is there, under its name and of the same shape."""

from __future__ import annotations

import re
import signal

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kubesched.base.metrics import MetricsRegistry
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.load import default_config
from kubesched.scheduler.factory import metrics_for

pytestmark = pytest.mark.real

REAL = pytest.mark.parametrize(
    "cluster", [pytest.param("real", marks=pytest.mark.real)], indirect=True
)


async def scraped(session):
    """The page of metrics: name -> (type, labels, buckets, stability)."""
    async with session.get("/metrics") as answer:
        assert answer.status == 200
        page = await answer.text()
    results = {}
    for family in text_string_to_metric_families(page):
        labels = {tuple(sorted(set(sample.labels) - {"le"})) for sample in family.samples}
        buckets = {float(sample.labels["le"]) for sample in family.samples if "le" in sample.labels}
        stability = re.match(r"\[\w+\]", family.documentation)
        results[family.name] = (family.type, labels, buckets, stability and stability[0])
    return results


async def workload(cluster, prefix):
    """A pod that fits, one that never does, one that needs preemption, one that is gated; then they
    leave.

    The deletion of the first has the queue ask plugins whether the second could be helped by it.
    """
    await cluster.add_pod(f"{prefix}-fits", cpu="1500m")
    await cluster.bound(f"{prefix}-fits")
    await cluster.add_pod(f"{prefix}-big", cpu="100")
    await cluster.condition(f"{prefix}-big")
    await cluster.add_pod(f"{prefix}-gated", schedulingGates=[{"name": "example.com/g"}])
    await cluster.add_pod(f"{prefix}-high", cpu="1500m", priorityClassName="high")

    async def nominated():
        return (await cluster.pod(f"{prefix}-high")).status.nominated_node_name

    await cluster.eventually(nominated)
    for name in ("fits", "big", "gated", "high"):
        path = f"/api/v1/namespaces/default/pods/{prefix}-{name}?gracePeriodSeconds=0"
        await cluster.admin._write("DELETE", path, b"")


def _observed():
    """What the workload above has schedulers observe: all families but those of features it does
    not touch.
    """
    registry = MetricsRegistry()
    metrics_for(default_config(), DEFAULT_GATES, registry)
    unobserved = re.compile(
        r"dynamic_resource_allocation_|scheduler_(batch_rescore_|permit_wait_|pre_queueing_hint_"
        r"|dra_|resourceclaim_|volume_)"
    )
    return {
        family.name.removesuffix("_total")
        for family in registry.families()
        if not unobserved.match(family.name)
    }


OBSERVED = _observed()
ROUNDS = 100
"""A tenth of the attempts is timed plugin by plugin: that none of so many was is out of the
question.
"""


async def scraped_with(cluster, session, prefix, families):
    """The page once it has these families: some show only after an observation, some of those a
    second later.
    """
    missing = families
    for number in range(ROUNDS):
        await workload(cluster, f"{prefix}-{number}")
        page = await scraped(session)
        missing = families - page.keys()
        if not missing:
            return page
    raise AssertionError(f"{prefix} never showed {sorted(missing)}")


GO_ONLY = re.compile(
    # Of Go's runtime and of libraries that the binary happens to hold; nothing about scheduling.
    r"go_|aggregator_|apiserver_|workqueue_|cardinality_|rest_client_(exec|transport)"
    r"|process_network|process_virtual_memory_max|(disabled|hidden|registered)_metrics|authenticated_user_requests|authentication_token_cache"
)


@REAL
async def test_every_metric_has_kube_schedulers_name_type_labels_and_buckets(
    cluster, contestant, admin_certificate
):
    await cluster.add_node("n1", cpu="2")
    await cluster.create(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        apiVersion="scheduling.k8s.io/v1",
        kind="PriorityClass",
        metadata={"name": "high"},
        value=1000,
    )
    pages = []
    for kind in ("theirs", "ours"):
        scheduler = await contestant(kind, kind=kind)
        await cluster.eventually(scheduler.is_ready)
        async with scheduler.client(admin_certificate) as session:
            pages.append(await scraped_with(cluster, session, kind, OBSERVED))
        assert await scheduler.kill(signal.SIGTERM) == 0
    theirs, ours = pages
    for page in pages:
        assert {name for name in page if name.startswith("scheduler_")} == OBSERVED
    missing = {name for name in theirs if name not in ours and not GO_ONLY.match(name)}
    assert missing == set()
    different = {
        name: (theirs[name], ours[name])
        for name in theirs
        if name in ours and theirs[name] != ours[name] and not GO_ONLY.match(name)
    }
    assert different == {}
