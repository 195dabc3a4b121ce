"""Notes on changes that the user cannot make, or cannot make alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.framework.handle import Listers
from kubesched.insight.explain.fixes.changes import (
    AnyChange,
    ClaimExclusion,
    GateRemoval,
    ObjectChange,
    PluginExclusion,
)
from kubesched.plugins.helper.volumes.claims import is_fully_bound

ANOTHER_VOLUME = (
    "tried without the claim: the volume of another one may be out of reach of the node"
)


def notes_on(changes: Sequence[AnyChange], pod: Pod, listers: Listers | None) -> Iterator[str]:
    for change in changes:
        if isinstance(change, GateRemoval):
            yield _on_gate(change.gate)
        elif isinstance(change, ClaimExclusion):
            if listers is not None:
                yield _on_claim(pod.metadata.namespace, change.claim, listers)
            yield ANOTHER_VOLUME
        elif isinstance(change, ObjectChange):
            yield from change.effects
        elif isinstance(change, PluginExclusion):
            yield (
                "every other plugin takes the node; "
                f"why {change.plugin} does not, its documentation has to say"
            )


def _on_gate(gate: str) -> str:
    domain, slash, _ = gate.partition("/")
    owner = f"the controller of {domain}" if slash else "the controller or webhook that set it"
    return f"the gate {gate} is for {owner} to remove: by hand, what it waits for is skipped"


def _on_claim(namespace: str, name: str, listers: Listers) -> str:
    claim: PersistentVolumeClaim | None = listers.of(PersistentVolumeClaim).get(namespace, name)
    if claim is None:
        return f"the claim {name} does not exist"
    if not is_fully_bound(claim):
        return f"the claim {name} is not bound"
    volume_name = claim.spec.volume_name
    volume: PersistentVolume | None = listers.of(PersistentVolume).get("", volume_name)
    if volume is None:
        return f"the claim {name} is bound to the volume {volume_name}, which does not exist"
    return f"the claim {name} is bound to the volume {volume_name}"
