"""A workload's pods, and why its controller creates fewer than it wants.

A state holds ReplicaSets and StatefulSets but no Deployments, DaemonSets or Jobs; these are derived
from the objects they own. For a live cluster `ask_cluster` reads the object and its events.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubesched.api.apps_v1 import ReplicaSet, StatefulSet
from kubesched.api.core_v1 import Event, Pod
from kubesched.api.kinds import find_kind
from kubesched.api.meta import ObjectMeta
from kubesched.base.errors import Forbidden
from kubesched.client.rest import RestClient

_NAME = re.compile(r'"[^"]*"')

API_VERSIONS = {
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
}


@dataclass(slots=True)
class Workload:
    """What is known about a workload."""

    kind: str
    namespace: str
    name: str
    pods: list[Pod]
    owners: set[tuple[str, str]]
    """Kind and name of the objects that own its pods."""
    wanted: int | None = None
    """Number of pods it wants; None if unknown."""
    obstacles: list[str] = field(default_factory=list)
    """Why its controller creates no more pods."""

    @property
    def is_known(self) -> bool:
        return bool(self.pods) or self.wanted is not None

    @property
    def pending(self) -> list[Pod]:
        return [pod for pod in self.pods if not pod.spec.node_name]

    def summary(self) -> str:
        """One sentence with the counts."""
        pending = len(self.pending)
        placed = f"{len(self.pods) - pending} placed, {pending} pending"
        of = "" if self.wanted is None else f" of {self.wanted}"
        return (
            f"{self.kind} {self.namespace}/{self.name}: {len(self.pods)}{of} pods exist, {placed}."
        )


def find_workload(
    objects: Callable[[type[Any]], list[Any]], kind: str, namespace: str, name: str
) -> Workload:
    """The workload, derived from other objects; `objects` lists those of a kind."""
    sets: list[ReplicaSet | StatefulSet] = [*objects(ReplicaSet), *objects(StatefulSet)]
    sets = [
        owner
        for owner in sets
        if owner.metadata.namespace == namespace and _is_of(owner, kind, name)
    ]
    owners = {(kind, name), *((owner.kind, owner.metadata.name) for owner in sets)}
    pods = [
        pod
        for pod in objects(Pod)
        if pod.metadata.namespace == namespace and _controller(pod.metadata) in owners
    ]
    workload = Workload(kind, namespace, name, pods, owners)
    if sets:
        workload.wanted = sum(1 if s.spec.replicas is None else s.spec.replicas for s in sets)
    for owner in sets:
        workload.obstacles += _failures(msgspec.to_builtins(owner.status))
    return workload


def _is_of(owner: ReplicaSet | StatefulSet, kind: str, name: str) -> bool:
    return (owner.kind, owner.metadata.name) == (kind, name) or (
        _controller(owner.metadata) == (kind, name)
    )


def _controller(metadata: ObjectMeta) -> tuple[str, str] | None:
    references = metadata.owner_references or ()
    return next(((owner.kind, owner.name) for owner in references if owner.controller), None)


async def ask_cluster(client: RestClient, workload: Workload) -> None:
    """Add data from the live cluster: the object itself, and events of failed pod creations.

    Raises:
        NotFound: the object does not exist.
    """
    kind = find_kind(API_VERSIONS[workload.kind], workload.kind)
    assert kind is not None, f"the kind table lacks {workload.kind}"
    found = await client.get_raw(kind.object_path(workload.name, workload.namespace))
    obj: dict[str, Any] = msgspec.json.decode(found)
    workload.wanted = _wanted(workload.kind, obj)
    told = list(_failures(obj.get("status", {})))
    if obj.get("spec", {}).get("paused"):
        told.append("it is paused: its controller does not roll out changes")
    try:
        page = await client.list_page(
            Event, workload.namespace, field_selector="reason=FailedCreate"
        )
    except Forbidden:
        events = []
    else:
        events = page.items
    for event in events:
        about = event.involved_object
        if (about.kind, about.name) in workload.owners:
            told.append(f"FailedCreate: {event.message.removeprefix('Error creating: ')}")
    # Every attempt names another pod; the last event of each distinct message suffices.
    told = [*workload.obstacles, *told]
    workload.obstacles = list({_NAME.sub("", text): text for text in told}.values())


def _wanted(kind: str, obj: dict[str, Any]) -> int:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    if kind == "DaemonSet":
        return int(status.get("desiredNumberScheduled", 0))
    return int(spec.get("parallelism" if kind == "Job" else "replicas", 1))


def _failures(status: dict[str, Any]) -> Iterator[str]:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            yield f"{condition.get('reason')}: {condition.get('message')}"
