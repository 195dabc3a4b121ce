"""What changed between releases of kube-scheduler, seen from outside: the same cluster under each
of them.
"""

from __future__ import annotations

import pytest
from explaining import state_of
from msgspec import convert, structs
from storage_objects import HOSTNAME, capacity, claim, csi, csi_driver, storage_class, volume

from kubesched.api.core_v1 import Namespace, Pod
from kubesched.api.meta import LabelSelector, ObjectMeta
from kubesched.api.policy_v1 import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from kubesched.config.features import defaults
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.pod_status import REASON_UNSCHEDULABLE
from kubesched.framework.preemption.budgets import Budgets
from kubesched.insight.explain.selection import in_node_order
from kubesched.insight.explain.sources import explainer_of
from kubesched.testing import Cluster, NodeBuilder, PodBuilder, make_node, make_pod

VERSIONS = ("1.37", "1.36")
NOT_HELPFUL = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
NO_VICTIMS = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
NO_CLAIMS = {"1.37": "", "1.36": "no new claims to deallocate, "}


def node(name: str = "a1", cpu: str = "1") -> NodeBuilder:
    return make_node(name).capacity(cpu=cpu, memory="8Gi", pods="110")


def pod(name: str, cpu: str = "100m") -> PodBuilder:
    return make_pod(name).cpu(cpu).memory("64Mi")


def cluster(version: str, *objects) -> Cluster:
    return Cluster(objects, gates=defaults(version))


def message(world: Cluster, name: str) -> str:
    reason, text = world.condition(name)
    assert reason == REASON_UNSCHEDULABLE
    return text


# -- messages --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("given", "wanted", "reason"),
    [
        (node(), pod("p", "4"), "1 Insufficient cpu"),
        (
            node(),
            pod("p").node_selector(x="y"),
            "1 node(s) didn't match Pod's node affinity/selector",
        ),
        (node().taint("t"), pod("p"), "1 node(s) had untolerated taint(s)"),
    ],
    ids=["T1", "T2", "T7"],
)
def test_an_unschedulable_pod_says_why(version, given, wanted, reason) -> None:
    with cluster(version, given.build()) as world:
        world.add(wanted.build())
        world.settle()
        assert message(world, "p") == (
            f"0/1 nodes are available: {reason}. {NO_CLAIMS[version]}{NOT_HELPFUL}"
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_preemptor_says_where_it_is_going(version) -> None:
    """T3, T4: also while it waits for its victims."""
    with cluster(version, node().build()) as world:
        world.evicted = lambda victim: None  # the victims take their time
        for name in ("l1", "l2"):
            world.add(pod(name, "450m").build())
        world.settle()
        world.add(pod("high", "900m").priority(1000).build())
        world.settle()
        said = "preemption: found a potential placement for pod on node a1, preempting 2 victims"
        text = "0/1 nodes are available: 1 Insufficient cpu."
        assert message(world, "high") == (f"{text} {said}" if version == "1.37" else text)
        assert world.pod("high").status.nominated_node_name == "a1"
        assert [event.note for event in world.events if event.reason == "FailedScheduling"] == [
            message(world, "high")
        ]
        for name in ("l1", "l2"):
            world.delete(world.pod(name))
        world.advance(10)
        assert world.node_of("high") == "a1"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pod_that_may_not_preempt_says_so(version) -> None:
    """T5."""
    with cluster(version, node().build(), pod("low", "800m").on("a1").build()) as world:
        never = pod("high", "800m").priority(1000).spec(preemptionPolicy="Never")
        world.add(never.build())
        world.settle()
        assert message(world, "high") == (
            f"0/1 nodes are available: 1 Insufficient cpu. {NO_CLAIMS[version]}"
            "preemption: not eligible due to preemptionPolicy=Never."
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_rejection_before_the_claims_were_looked_at_ends_in_not_found(version) -> None:
    """T6: the same in both releases."""
    with cluster(version, node().build()) as world:
        world.add(pod("p").claim("nope").build())
        world.settle()
        assert message(world, "p") == (
            '0/1 nodes are available: persistentvolumeclaim "nope" not found. not found'
        )


# -- events ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pod_is_retried_when_its_taint_is_gone(version) -> None:
    """T13: the same in both releases."""
    with cluster(version, node().taint("t").build()) as world:
        world.add(pod("p").build())
        world.settle()
        world.update(node().build())
        world.advance(10)
        assert world.node_of("p") == "a1"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "changed",
    [node().label("x", "y"), node(cpu="2")],
    ids=["a label", "allocatable, but not enough"],
)
def test_a_node_change_that_does_not_help_makes_no_attempt(version, changed) -> None:
    """T14: the same in both releases."""
    with cluster(version, node().build()) as world:
        world.add(pod("p", "4").build())
        world.settle()
        world.advance(10)
        world.update(changed.build())
        world.advance(10)
        assert attempts(world, "p") == 1


def attempts(world: Cluster, name: str) -> int:
    return sum(
        event.reason == "FailedScheduling" and event.pod.endswith(f"/{name}")
        for event in world.events
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("goes", ["deleted", "relabelled"])
def test_any_term_of_anti_affinity_that_is_no_longer_met_wakes_the_pod(version, goes) -> None:
    """T15, T16."""
    other = pod("other").labels(app="a").on("a1")
    with cluster(version, node().label(HOSTNAME, "a1").build(), other.build()) as world:
        apart = pod("p").pod_anti_affinity(HOSTNAME, app="a").pod_anti_affinity(HOSTNAME, app="b")
        world.add(apart.build())
        world.settle()
        assert "didn't match pod anti-affinity rules" in message(world, "p")
        if goes == "deleted":
            world.delete(world.pod("other"))
        else:
            known = world.pod("other")
            meta = structs.replace(known.metadata, labels={"app": "c"})
            world.update(structs.replace(known, metadata=meta))
        world.advance(20)
        assert world.node_of("p") == ("a1" if version == "1.37" else "")
        world.advance(400)
        assert world.node_of("p") == "a1", "at the latest after the flush"


# -- namespaces ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "expression",
    [
        {"key": "team", "operator": "DoesNotExist"},
        {"key": "team", "operator": "NotIn", "values": ["x"]},
    ],
    ids=["T17, T18", "T19"],
)
@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_a_namespace_selector_selects_among_existing_namespaces(version, expression, kind) -> None:
    term = {
        "topologyKey": HOSTNAME,
        "labelSelector": {"matchLabels": {"app": "a"}},
        "namespaceSelector": {"matchExpressions": [expression]},
    }
    other = make_pod("other", "other").labels(app="a").on("a1")
    spaces = [
        Namespace(metadata=ObjectMeta(name="default")),
        Namespace(metadata=ObjectMeta(name="other", labels={"team": "x"})),
    ]
    objects = [*spaces, node().label(HOSTNAME, "a1").build(), other.build()]
    with cluster(version, *objects) as world:
        world.add(pod("p").affinity(kind, required=[term]).build())
        world.settle()
        finds_it = version == "1.36"
        fits = finds_it if kind == "podAffinity" else not finds_it
        assert world.node_of("p") == ("a1" if fits else "")
        if not fits:
            rules = "affinity" if kind == "podAffinity" else "anti-affinity"
            assert f"1 node(s) didn't match pod {rules} rules" in message(world, "p")


# -- images ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "as_volume", "score"),
    [("1.37", True, 14), ("1.36", True, 28), ("1.37", False, 28), ("1.36", False, 28)],
    ids=["T20", "T20 1.36", "T21", "T21 1.36"],
)
def test_image_volumes_count_among_the_images(version, as_volume, score) -> None:
    image = "reg.example/vol:1"
    nodes = [node("i1").image(image, size_bytes=600 << 20), node("i2")]
    wanted = pod("p").image("unknown" if as_volume else image)
    if as_volume:
        wanted.spec(volumes=[{"name": "v", "image": {"reference": image}}])
    built = wanted.build()
    explainer = explainer_of(state_of(*nodes, built), gates=defaults(version))
    told = explainer.explain(built, in_node_order)
    scores = {row.node: row.scores["ImageLocality"].weighted for row in told.matrix}
    assert scores == {"i1": score, "i2": 0}


# -- resized pods ----------------------------------------------------------------------------------


def resized(spec: dict, status: dict) -> Pod:
    meta = {"name": "running", "namespace": "default", "uid": "running"}
    return convert({"metadata": meta, "spec": {"nodeName": "a1"} | spec, "status": status}, Pod)


def asking(name: str, cpu: str, **fields: object) -> dict:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}, **fields}


def reporting(name: str, allocated: str, actual: str = "") -> dict:
    report = {"name": name, "allocatedResources": {"cpu": allocated}}
    return report | ({"resources": {"requests": {"cpu": actual}}} if actual else {})


INFEASIBLE = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]


@pytest.mark.parametrize(
    ("running", "cpu", "fits_in"),
    [
        pytest.param(
            resized(
                {"containers": [asking("c1", "1"), asking("c2", "2")]},
                {"containerStatuses": [reporting("c1", "2", "2"), reporting("c2", "1", "1")]},
            ),
            "900m",
            "1.37",
            id="T22",
        ),
        pytest.param(
            resized(
                {"containers": [asking("c", "1")]}, {"containerStatuses": [reporting("c", "3")]}
            ),
            "1500m",
            "1.36",
            id="T23",
        ),
        pytest.param(
            resized(
                {"containers": [asking("c1", "2"), asking("c2", "1")]},
                {"conditions": INFEASIBLE, "containerStatuses": [reporting("c1", "1", "1")]},
            ),
            "2500m",
            "1.37",
            id="T24",
        ),
        pytest.param(
            resized(
                {"initContainers": [asking("i", "1")], "containers": [asking("c", "1")]},
                {"initContainerStatuses": [reporting("i", "3", "3")]},
            ),
            "1500m",
            "1.36",
            id="T24b",
        ),
        pytest.param(
            resized(
                {"containers": [asking("c", "1")]},
                {"allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "3"}}},
            ),
            "1500m",
            "1.36",
            id="T24c",
        ),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_resized_pod_takes_its_footprint(version, running, cpu, fits_in) -> None:
    with cluster(version, node(cpu="4").build(), running) as world:
        world.add(pod("p", cpu).build())
        world.settle()
        assert world.node_of("p") == ("a1" if version == fits_in else "")
        if version != fits_in:
            assert message(world, "p").startswith("0/1 nodes are available: 1 Insufficient cpu.")


# -- volumes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "chosen"), [("1.37", "v2"), ("1.36", "v1")])
def test_a_volume_goes_where_more_storage_is_left(version, chosen) -> None:
    """T25: although the other node has more cpu."""
    wanted = pod("p").claim("data").build()
    state = state_of(
        *(node(name, "4").label(HOSTNAME, name) for name in ("v1", "v2")),
        pod("busy", "3").on("v2"),
        storage_class("late"),
        csi_driver(storageCapacity=True),
        capacity("c1", "late", {HOSTNAME: "v1"}, capacity="100Gi"),
        capacity("c2", "late", {HOSTNAME: "v2"}, capacity="1000Gi"),
        claim("data", storage_class="late", size="50Gi"),
        wanted,
    )
    told = explainer_of(state, gates=defaults(version)).explain(wanted, in_node_order)
    scores = {row.node: row.scores for row in told.matrix}
    assert scores["v1"]["NodeResourcesFit"].weighted > scores["v2"]["NodeResourcesFit"].weighted
    volumes = {n: s["VolumeBinding"].weighted for n, s in scores.items() if "VolumeBinding" in s}
    assert volumes == ({"v1": 50, "v2": 95} if version == "1.37" else {})
    assert told.chosen.node == chosen


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pod_waits_for_a_driver_that_must_be_installed(version) -> None:
    """T26."""
    bound = volume("pv", csi=csi("csi.lim"), reserved=("data", "uid-default-data"), phase="Bound")
    storage = [
        csi_driver("csi.lim", preventPodSchedulingIfMissing=True),
        claim("data", volume="pv"),
        bound,
    ]
    nodes = [node(name).build() for name in ("a1", "a2")]
    with Cluster([*nodes, *storage], gates=defaults(version)) as world:
        world.add(pod("p").claim("data").build())
        world.settle()
        if version == "1.36":
            assert world.node_of("p")
        else:
            assert message(world, "p") == (
                "0/2 nodes are available: 2 csi.lim CSI driver is not installed on the node. "
                "preemption: 0/2 nodes are available: "
                "2 No preemption victims found for incoming pod."
            )


# -- preemption ------------------------------------------------------------------------------------


def budget(name: str, allowed: int) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={name: "yes"})),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
    )


@pytest.mark.parametrize(
    ("version", "violating"), [("1.37", [True, False]), ("1.36", [True, True])]
)
def test_a_victim_is_charged_up_to_the_first_budget_it_violates(version, violating) -> None:
    """T55: v1 violates the first budget, so that the second is left for v2."""
    stops = defaults(version).reference.budgets_stop_at_first_violation
    budgets = Budgets([budget("a", 0), budget("b", 1)], stops_at_violation=stops)
    victims = [make_pod("v1").labels(a="yes", b="yes"), make_pod("v2").labels(b="yes")]
    assert budgets.violated_by([PodInfo(victim.build()) for victim in victims]) == violating


@pytest.mark.parametrize(("version", "violations"), [("1.37", 1), ("1.36", 2)])
def test_preemption_counts_violated_budgets_as_the_release_does(version, violations) -> None:
    """T55, with a scheduler around it."""
    victims = [
        pod("v1", "500m").labels(a="yes", b="yes").priority(1).on("a1"),
        pod("v2", "500m").labels(b="yes").on("a1"),
    ]
    wanted = pod("high", "1").priority(1000).build()
    state = state_of(node(), *victims, budget("a", 0), budget("b", 1), wanted)
    explainer = explainer_of(state, gates=defaults(version))
    (framework,) = explainer.assembly.frameworks.values()
    _, candidate = explainer.decide(framework, PodInfo(wanted))
    assert candidate.victims.pdb_violations == violations
