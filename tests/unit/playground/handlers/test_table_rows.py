"""What `kubectl get` prints: the status words of pods and the cells of the other kinds."""

from __future__ import annotations

import pytest

from kubesched.playground.handlers.tables.durations import human_duration
from kubesched.playground.handlers.tables.pods import ready_text, restarts_text, status_text

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


def pod(phase: str = "Running", *, deleted: bool = False, init: int = 0, **status) -> dict:
    metadata = {"name": "p", "namespace": "default"}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec = {
        "containers": [{"name": "a"}, {"name": "b"}],
        "initContainers": [{"name": f"i{n}"} for n in range(init)],
    }
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase, **status}}


def state(
    name: str = "a", ready: bool = False, restarts: int = 0, last: str = "", **states
) -> dict:
    body = {"name": name, "ready": ready, "restartCount": restarts, "state": states}
    if last:
        body["lastState"] = {"terminated": {"finishedAt": last}}
    return body


RUNNING = {"running": {}}
WAITING = {"waiting": {"reason": "ContainerCreating"}}
DONE = {"terminated": {"exitCode": 0, "reason": "Completed"}}
FAILED = {"terminated": {"exitCode": 3}}
KILLED = {"terminated": {"exitCode": 137, "signal": 9}}
READY = [{"type": "Ready", "status": "True"}]
GATED = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(pod("Pending"), "Pending", id="nothing known yet"),
        pytest.param(pod("Pending", conditions=GATED), "SchedulingGated", id="gated"),
        pytest.param(
            pod("Pending", containerStatuses=[state(**WAITING)]),
            "ContainerCreating",
            id="being made",
        ),
        pytest.param(
            pod(containerStatuses=[state(ready=True, **RUNNING)]), "Running", id="running"
        ),
        pytest.param(
            pod("Succeeded", containerStatuses=[state(**DONE)]), "Completed", id="completed"
        ),
        pytest.param(
            pod("Failed", containerStatuses=[state(**FAILED)]),
            "ExitCode:3",
            id="failed by exit code",
        ),
        pytest.param(pod("Failed", containerStatuses=[state(**KILLED)]), "Signal:9", id="killed"),
        pytest.param(pod("Failed", reason="Evicted"), "Evicted", id="a reason of the pod's own"),
        pytest.param(
            pod(
                containerStatuses=[state(**DONE), state("b", ready=True, **RUNNING)],
                conditions=READY,
            ),
            "Running",
            id="one done, one running and ready",
        ),
        pytest.param(
            pod(containerStatuses=[state(**DONE), state("b", ready=True, **RUNNING)]),
            "NotReady",
            id="one done, one running and not ready",
        ),
        pytest.param(pod(deleted=True), "Terminating", id="on its way out"),
        pytest.param(
            pod("Succeeded", deleted=True), "Succeeded", id="ended before it could terminate"
        ),
        pytest.param(
            pod("Failed", deleted=True, reason="NodeLost"), "Unknown", id="its node is lost"
        ),
        pytest.param(
            pod("Pending", init=2, initContainerStatuses=[state(**DONE), state("i1", **RUNNING)]),
            "Init:1/2",
            id="the second of two init containers",
        ),
        pytest.param(
            pod(
                "Pending",
                init=1,
                initContainerStatuses=[state(waiting={"reason": "CrashLoopBackOff"})],
            ),
            "Init:CrashLoopBackOff",
            id="an init container that keeps crashing",
        ),
        pytest.param(
            pod("Failed", init=1, initContainerStatuses=[state(**FAILED)]),
            "Init:ExitCode:3",
            id="an init container that failed",
        ),
    ],
)
def test_one_word_says_what_a_pod_is_up_to(obj, expected):
    assert status_text(obj) == expected


def test_readiness_counts_containers_and_sidecars():
    obj = pod(containerStatuses=[state(ready=True), state("b")], init=2)
    obj["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    obj["status"]["initContainerStatuses"] = [state("i0", ready=True), state("i1", ready=True)]
    assert ready_text(obj) == "2/3"


def test_restarts_say_when_the_last_one_was():
    assert restarts_text(pod(containerStatuses=[state()]), 0) == "0"
    obj = pod(
        containerStatuses=[state(restarts=2, last="2026-01-01T00:00:00Z"), state("b", restarts=1)]
    )
    assert restarts_text(obj, 1_767_225_600 + 190) == "3 (3m10s ago)"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (190, "3m10s"),
        (600, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (11400, "3h10m"),
        (28800, "8h"),
        (172799, "47h"),
        (172800, "2d"),
        (180000, "2d2h"),
        (700000, "8d"),
        (86400 * 400, "400d"),
        (86400 * 800, "2y70d"),
        (86400 * 365 * 9, "9y"),
    ],
)
def test_ages_are_written_as_kubectl_writes_them(seconds, text):
    assert human_duration(seconds) == text


async def rows(http, path: str) -> tuple[list[str], list[list]]:
    table = await http.get(path, accept=TABLE)
    assert table["kind"] == "Table"
    return [each["name"] for each in table["columnDefinitions"]], [
        row["cells"] for row in table["rows"]
    ]


async def test_nodes_show_status_roles_and_version(http, api):
    api.create(
        "nodes",
        {
            "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/control-plane": ""}},
            "spec": {"unschedulable": True},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"kubeletVersion": "v1.36.4"},
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            },
        },
    )
    names, cells = await rows(http, "/api/v1/nodes")
    assert names[:6] == ["Name", "Status", "Roles", "Age", "Version", "Internal-IP"]
    assert cells[0][:6] == [
        "n",
        "Ready,SchedulingDisabled",
        "control-plane",
        "0s",
        "v1.36.4",
        "10.0.0.1",
    ]


async def test_rows_carry_as_much_of_the_object_as_was_asked_for(http, api, make_pod):
    api.create("pods", make_pod("p"))
    path = "/api/v1/namespaces/default/pods"
    default = await http.get(path, accept=TABLE)
    assert default["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    whole = await http.get(f"{path}?includeObject=Object", accept=TABLE)
    assert whole["rows"][0]["object"]["spec"]
    none = await http.get(f"{path}?includeObject=None", accept=TABLE)
    assert "object" not in none["rows"][0]


async def test_every_kind_has_a_table(http):
    for resource in http.server.registry.catalog:
        if resource.is_stored:
            root = (
                f"/apis/{resource.group}/{resource.version}"
                if resource.group
                else f"/api/{resource.version}"
            )
            names, _ = await rows(http, f"{root}/{resource.plural}")
            assert "Name" in names, resource.key


async def test_workloads_show_their_counts(http, api):
    labels = {"app": "web"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]},
    }
    spec = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}
    api.create(
        "deployments.apps", {"metadata": {"name": "d", "namespace": "default"}, "spec": spec}
    )
    status = {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1}
    api.patch("deployments.apps", "default", "d", {"status": status}, subresource="status")
    names, cells = await rows(http, "/apis/apps/v1/deployments")
    assert names == [
        "Name",
        "Ready",
        "Up-to-date",
        "Available",
        "Age",
        "Containers",
        "Images",
        "Selector",
    ]
    assert cells == [["d", "2/3", 3, 1, "0s", "c", "i:1", "app=web"]]


async def test_storage_shows_capacity_modes_and_claims(http, api):
    volume = {
        "metadata": {"name": "v"},
        "spec": {
            "capacity": {"storage": "5Gi"},
            "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
            "hostPath": {"path": "/x"},
            "claimRef": {"namespace": "default", "name": "c"},
            "storageClassName": "fast",
        },
    }
    api.create("persistentvolumes", volume)
    _, cells = await rows(http, "/api/v1/persistentvolumes")
    assert cells[0][:8] == [
        "v",
        "5Gi",
        "RWO,RWX",
        "Retain",
        "Pending",
        "default/c",
        "fast",
        "<unset>",
    ]
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    api.create(
        "storageclasses.storage.k8s.io",
        {"metadata": {"name": "fast", "annotations": annotations}, "provisioner": "p"},
    )
    _, cells = await rows(http, "/apis/storage.k8s.io/v1/storageclasses")
    assert cells[0] == ["fast (default)", "p", "Delete", "Immediate", "false", "0s"]


async def test_events_show_what_happened_to_whom(http, api, clock):
    event = {
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Scheduled",
        "message": "assigned\n",
        "type": "Normal",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 4,
    }
    api.create("events", event)
    clock.advance(90)
    names, cells = await rows(http, "/api/v1/namespaces/default/events")
    shown = dict(zip(names, cells[0], strict=True))
    assert (shown["Last Seen"], shown["Object"], shown["Message"], shown["Count"]) == (
        "90s",
        "pod/p",
        "assigned",
        4,
    )


async def test_objects_that_nothing_acts_on_show_name_and_age(http):
    path = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
    await http.post(path, {"metadata": {"name": "x"}, "spec": {"rules": [{"host": "a"}]}})
    names, cells = await rows(http, path)
    assert (names, cells[0][0]) == (["Name", "Age"], "x")
