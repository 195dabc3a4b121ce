"""Random pod-level resources and in-place resizes (see `generate_sequence`).

A resize uses the subresource of that name. The player writes the kubelet's response to the pod's
status: nothing yet, in progress, deferred, infeasible or done.
"""

from __future__ import annotations

from random import Random

from kubesched.lab.conformance.sequences import Json

RESIZES_WHOLE_PODS = "InPlacePodLevelResourcesVerticalScaling"
"""Feature that a node must declare for pod-level resources to be resized on it."""

_CPU = ("100m", "300m", "700m", "1500m", "2500m")
_MEMORY = ("64Mi", "200Mi", "700Mi", "2Gi")
_NOT_SHARED = ("example.com/", "hugepages-")


def resize(random: Random, pod: Json) -> Json | None:
    """A patch for the subresource: other requests for a container, a sidecar or the whole pod."""
    spec = pod["spec"]
    if spec.get("resources") and random.random() < 0.5:
        return {"spec": {"resources": {"requests": _requests(random)}}}
    candidates = [
        (field, container) for field, container in _running(spec) if _may_change(container)
    ]
    if not candidates:
        return None
    field, container = random.choice(candidates)
    change = {"name": container["name"], "resources": {"requests": _requests(random)}}
    return {"spec": {field: [change]}}


def kubelet_report(random: Random, pod: Json) -> Json:
    """A patch for the status: allocated and used resources, and the state of the resize."""
    status: Json = {"conditions": [_condition(random)]}
    for field, container in _running(pod["spec"]):
        if random.random() < 0.8:
            reported = {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "allocatedResources": _requests(random),
                "resources": {"requests": _requests(random)},
            }
            of_kind = "containerStatuses" if field == "containers" else "initContainerStatuses"
            status.setdefault(of_kind, []).append(reported)
    if pod["spec"].get("resources") and random.random() < 0.6:
        status["resources"] = {"requests": _requests(random)}
        status["allocatedResources"] = _requests(random)
    return {"status": status}


def _running(spec: Json) -> list[tuple[str, Json]]:
    """Containers that keep running, with the field that holds them."""
    sidecars = [
        container
        for container in spec.get("initContainers", ())
        if container.get("restartPolicy") == "Always"
    ]
    return [("containers", container) for container in spec["containers"]] + [
        ("initContainers", container) for container in sidecars
    ]


def _may_change(container: Json) -> bool:
    """Whether it requests CPU or memory; adding a first request would change the QoS class."""
    requests = container.get("resources", {}).get("requests", {})
    return any(requests.get(name) not in (None, "0") for name in ("cpu", "memory"))


def _requests(random: Random) -> Json:
    requests: Json = {}
    if random.random() < 0.8:
        requests["cpu"] = random.choice(_CPU)
    if not requests or random.random() < 0.6:
        requests["memory"] = random.choice(_MEMORY)
    return requests


def _condition(random: Random) -> Json:
    kind, reason = random.choice(
        (
            ("PodResizePending", "Deferred"),
            ("PodResizePending", "Infeasible"),
            ("PodResizePending", "Infeasible"),
            ("PodResizeInProgress", ""),
        )
    )
    condition = {"type": kind, "status": "True"}
    return {**condition, "reason": reason} if reason else condition


# -- resources of the whole pod --------------------------------------------------------------------


def put_pod_level(random: Random, pod: Json) -> bool:
    """Add pod-level resources that cover the containers'; returns whether that was possible."""
    spec = pod["spec"]
    containers = [*spec["containers"], *spec.get("initContainers", ())]
    if len(containers) > 4 or any(_is_special(container) for container in containers):
        return False
    for container in containers:
        container["resources"] = {"requests": _modest(random)}
    requests: Json = {"cpu": random.choice(("1", "1500m", "2")), "memory": "1Gi"}
    limits: Json = {}
    if random.random() < 0.3:
        del requests[random.choice(("cpu", "memory"))]
    if random.random() < 0.3:
        limits["cpu"] = random.choice(("2", "4"))  # without a request, the limit is the request
    if random.random() < 0.2:
        requests["hugepages-2Mi"] = limits["hugepages-2Mi"] = "4Mi"
        requests.setdefault("memory", "1Gi")
    spec["resources"] = {"requests": requests} | ({"limits": limits} if limits else {})
    return True


def _is_special(container: Json) -> bool:
    requests = container.get("resources", {}).get("requests", {})
    return any(name.startswith(_NOT_SHARED) for name in requests)


def _modest(random: Random) -> Json:
    requests: Json = {}
    if random.random() < 0.6:
        requests["cpu"] = random.choice(("50m", "100m", "250m"))
    if random.random() < 0.6:
        requests["memory"] = random.choice(("32Mi", "100Mi", "250Mi"))
    return requests
