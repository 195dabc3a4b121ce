"""Resources of pods beyond plain requests, at random: those of whole pods, and changes while they run.

See `generate_sequence`. A resize is asked for through the subresource of that name; what the
kubelet makes of it (nothing yet, in progress, deferred, refused, done) is written to the pod's
status by the player.
"""

from __future__ import annotations

from random import Random

from kubesched.lab.conformance.sequences import Json

RESIZES_WHOLE_PODS = "InPlacePodLevelResourcesVerticalScaling"
"""What a node has to declare for the resources of whole pods on it to be changed."""

_CPU = ("100m", "300m", "700m", "1500m", "2500m")
_MEMORY = ("64Mi", "200Mi", "700Mi", "2Gi")
_NOT_SHARED = ("example.com/", "hugepages-")


def resize(random: Random, pod: Json) -> Json | None:
    """A patch for the subresource: other requests for one container or sidecar, or for the pod as a whole."""
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
    """A patch for the status: what containers were given, what they use, and how the resize is going."""
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
    """Containers that stay, with the field they are in."""
    sidecars = [
        container
        for container in spec.get("initContainers", ())
        if container.get("restartPolicy") == "Always"
    ]
    return [("containers", container) for container in spec["containers"]] + [
        ("initContainers", container) for container in sidecars
    ]


def _may_change(container: Json) -> bool:
    """Whether it asks for CPU or memory: one that asks for nothing must not begin to, or the pod's class would change."""
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
    """Give the pod resources of its own, with room for those of its containers; whether that was possible."""
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
        limits["cpu"] = random.choice(("2", "4"))  # if there is no request, the limit is one
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
