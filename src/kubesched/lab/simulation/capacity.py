"""Requests against allocatable: a simple second implementation over JSON."""

from __future__ import annotations

from collections.abc import Iterable

from kubesched.playground.apimachinery.objects import JsonObject

RESOURCES = ("cpu", "memory")


def overcommitment(node: JsonObject, pods: Iterable[JsonObject]) -> str | None:
    """The limit of the node that these pods exceed; None if they fit."""
    pods = list(pods)
    room = node["status"]["allocatable"]
    if len(pods) > int(room["pods"]):
        return f"{len(pods)} pods where {room['pods']} fit"
    for resource in RESOURCES:
        wanted, fit = sum(_amount(_request(pod, resource)) for pod in pods), _amount(room[resource])
        if wanted > fit:
            return f"{resource} requests of {wanted} where {fit} fit"
    return None


def roomier(one: JsonObject, other: JsonObject) -> JsonObject:
    """A node with the larger amount of each resource."""
    a, b = one["status"]["allocatable"], other["status"]["allocatable"]
    room = {name: max(a[name], b[name], key=_amount) for name in a}
    return {"status": {"allocatable": room}}


def less_demanding(one: JsonObject, other: JsonObject) -> JsonObject:
    """A pod with the smaller amount of each request."""
    requests = {
        name: min(_request(one, name), _request(other, name), key=_amount) for name in RESOURCES
    }
    return {"spec": {"containers": [{"resources": {"requests": requests}}]}}


def _request(pod: JsonObject, resource: str) -> str:
    requests = pod["spec"]["containers"][0].get("resources", {}).get("requests", {})
    request: str = str(requests.get(resource, "0"))
    return request


def _amount(text: str) -> int:
    """Millicores or bytes, in the notations that the workloads use."""
    for suffix, factor in (("m", 1), ("Mi", 2**20), ("Gi", 2**30)):
        if text.endswith(suffix):
            return int(text.removesuffix(suffix)) * factor
    return int(text) * 1000
