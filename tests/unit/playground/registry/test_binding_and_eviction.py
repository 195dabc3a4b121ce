"""The two commands on pods: binding to a node, and eviction under disruption budgets."""

from __future__ import annotations

import pytest

from kubesched.base.errors import Conflict, NotFound, TooManyRequests
from kubesched.playground.registry.deletion import DeleteOptions
from kubesched.playground.registry.eviction import evict


@pytest.fixture
def nodes(api):
    for name in ("n1", "n2"):
        api.create("nodes", {"metadata": {"name": name}})


def test_a_bound_pod_is_scheduled_and_no_longer_nominated(api, nodes, make_pod):
    api.create("pods", make_pod("p"))
    api.patch("pods", "default", "p", {"status": {"nominatedNodeName": "n2"}}, subresource="status")
    api.bind("default", "p", "n1")
    pod = api.get("pods", "default", "p")
    assert pod["spec"]["nodeName"] == "n1"
    assert "nominatedNodeName" not in pod["status"]
    assert pod["status"]["conditions"] == [
        {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]
    assert pod["metadata"]["generation"] == 1
    api.registry.store.check_invariants()


def test_a_pod_is_bound_once(api, nodes, make_pod):
    api.create("pods", make_pod("p"))
    api.bind("default", "p", "n1")
    with pytest.raises(Conflict, match='pod p is already assigned to node "n1"'):
        api.bind("default", "p", "n2")
    assert api.get("pods", "default", "p")["spec"]["nodeName"] == "n1"


ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"


@pytest.mark.parametrize(
    ("on_node", "on_pod", "bound"),
    [
        pytest.param(
            {ZONE: "z", REGION: "r", "topology.kubernetes.io/rack": "7"},
            None,
            {ZONE: "z", REGION: "r"},
            id="zone and region are copied, nothing else",
        ),
        pytest.param(
            {ZONE: "z"},
            {ZONE: "mine", REGION: "mine", "app": "web"},
            {ZONE: "z", REGION: "mine", "app": "web"},
            id="the node's word counts, where it has one",
        ),
        pytest.param({"disk": "ssd"}, None, None, id="a node without topology adds nothing"),
    ],
)
@pytest.mark.parametrize("how", ["bound", "created there"])
def test_a_pod_carries_the_topology_labels_of_its_node(
    api, make_pod, on_node, on_pod, bound, how
) -> None:
    api.create("nodes", {"metadata": {"name": "n", "labels": on_node}})
    pod = make_pod("p")
    if on_pod is not None:
        pod["metadata"]["labels"] = on_pod
    if how == "created there":
        pod["spec"]["nodeName"] = "n"
    api.create("pods", pod)
    if how == "bound":
        assert api.get("pods", "default", "p")["metadata"].get("labels") == on_pod
        api.bind("default", "p", "n")
    assert api.get("pods", "default", "p")["metadata"].get("labels") == bound


def test_another_incarnation_of_the_pod_is_not_bound(api, nodes, make_pod):
    api.create("pods", make_pod("p"))
    with pytest.raises(Conflict, match="UID in precondition"):
        api.bind("default", "p", "n1", uid="another-uid")


def test_a_gated_pod_is_not_bound(api, nodes, make_pod):
    api.create("pods", make_pod("p", schedulingGates=[{"name": "g"}]))
    with pytest.raises(Conflict, match=r"has non-empty \.spec\.schedulingGates"):
        api.bind("default", "p", "n1")


def test_a_pod_that_is_leaving_is_not_bound(api, nodes, make_pod):
    pod = make_pod("p")
    pod["metadata"]["finalizers"] = ["example.com/hold"]
    api.create("pods", pod)
    api.delete("pods", "default", "p")
    with pytest.raises(Conflict, match="is being deleted, cannot be assigned to a host"):
        api.bind("default", "p", "n1")


def test_a_node_that_does_not_exist_takes_no_pods(api, nodes, make_pod):
    api.create("pods", make_pod("p"))
    with pytest.raises(NotFound, match='nodes "nowhere" not found'):
        api.bind("default", "p", "nowhere")
    with pytest.raises(NotFound, match='pods "ghost" not found'):
        api.bind("default", "ghost", "n1")


def running(api, make_pod, name: str, ready: bool = True) -> None:
    pod = make_pod(name)
    pod["metadata"]["labels"] = {"app": "web"}
    api.create("pods", pod)
    api.bind("default", name, "n1")
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    api.patch(
        "pods",
        "default",
        name,
        {"status": {"phase": "Running", "conditions": conditions}},
        subresource="status",
    )


def budget(api, name: str = "b", **status: int) -> None:
    selector = {"matchLabels": {"app": "web"}}
    api.create(
        "poddisruptionbudgets.policy",
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": selector},
        },
    )
    api.patch(
        "poddisruptionbudgets.policy", "default", name, {"status": status}, subresource="status"
    )


def test_an_eviction_within_the_budget_is_taken_from_it(api, nodes, make_pod):
    running(api, make_pod, "p")
    budget(api, observedGeneration=1, disruptionsAllowed=1, currentHealthy=2, desiredHealthy=1)
    evict(api.registry, "default", "p", DeleteOptions())
    assert api.get("pods", "default", "p")["metadata"]["deletionTimestamp"]
    status = api.get("poddisruptionbudgets.policy", "default", "b")["status"]
    assert status["disruptionsAllowed"] == 0
    assert list(status["disruptedPods"]) == ["p"]


def test_an_eviction_beyond_the_budget_is_refused_with_the_reason(api, nodes, make_pod):
    running(api, make_pod, "p")
    budget(api, observedGeneration=1, disruptionsAllowed=0, currentHealthy=1, desiredHealthy=1)
    with pytest.raises(
        TooManyRequests, match="would violate the pod's disruption budget"
    ) as caught:
        evict(api.registry, "default", "p", DeleteOptions())
    cause = caught.value.details["causes"][0]
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"] == "The disruption budget b needs 1 healthy pods and has 1 currently"
    assert "deletionTimestamp" not in api.get("pods", "default", "p")["metadata"]


def test_a_budget_that_was_never_computed_asks_for_patience(api, nodes, make_pod):
    running(api, make_pod, "p")
    budget(api, observedGeneration=0, disruptionsAllowed=5)
    with pytest.raises(TooManyRequests) as caught:
        evict(api.registry, "default", "p", DeleteOptions())
    assert caught.value.retry_after_s == 10


def test_a_pod_that_never_ran_may_always_go(api, nodes, make_pod):
    pod = make_pod("p")
    pod["metadata"]["labels"] = {"app": "web"}
    api.create("pods", pod)
    budget(api, observedGeneration=1, disruptionsAllowed=0)
    evict(api.registry, "default", "p", DeleteOptions())
    with pytest.raises(NotFound):
        api.get("pods", "default", "p")


def test_a_pod_that_is_not_ready_may_go_while_enough_others_are(api, nodes, make_pod):
    running(api, make_pod, "p", ready=False)
    budget(api, observedGeneration=1, disruptionsAllowed=0, currentHealthy=2, desiredHealthy=2)
    evict(api.registry, "default", "p", DeleteOptions())
    assert api.get("pods", "default", "p")["metadata"]["deletionTimestamp"]


def test_a_pod_without_a_budget_just_goes(api, nodes, make_pod):
    running(api, make_pod, "p")
    evict(api.registry, "default", "p", DeleteOptions(grace_period_s=0))
    with pytest.raises(NotFound):
        api.get("pods", "default", "p")
