"""Equal parts of pods are kept once.

Pods of one ReplicaSet have equal containers, tolerations, affinity and labels. Decoded one by one,
a pod takes 7.6 kB with what the scheduler keeps beside it; with equal parts shared, 2.1 kB
(`benchmarks/pod_memory.py`). Records are frozen, and lists and dictionaries in them are treated so.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import structs

from kubesched.api.core_v1 import Pod, Volume

TOKEN_VOLUME: Final = "kube-api-access-"
"""The API server adds a volume of this name and five random letters to every pod. The letters are
dropped: nothing reads them, and with them no two pods were equal.
"""

_LISTS_OF_PARTS = frozenset(("volumes", "conditions"))
"""Of these one item may differ from pod to pod (a claim, a time), and the others recur."""
_SPEC = (
    "volumes",
    "init_containers",
    "containers",
    "node_selector",
    "affinity",
    "tolerations",
    "topology_spread_constraints",
    "scheduler_name",
    "node_name",
)
_METADATA = ("labels", "annotations", "owner_references", "namespace")
_STATUS = ("conditions", "host_ips", "init_container_statuses", "container_statuses")

PARTS_LIMIT: Final = 20_000
"""Distinct parts of one field that are remembered. Beyond that all are forgotten, which only ends
the sharing with them.
"""

_encode = msgspec.msgpack.Encoder().encode


class Sharing:
    """Remembers one of each distinct part while pods come in."""

    def __init__(self) -> None:
        self._known: dict[str, dict[bytes, Any]] = {}
        """By field, and in it by what the part is encoded as: of one type, equal encodings are
        equal values.
        """

    def share(self, pod: Pod) -> Pod:
        """Have a pod that was just decoded, and that no one else holds, share what it can with those seen before.

        Returns the pod itself, as informers want it of what trims their objects.
        """
        if pod.spec.volumes is not None:
            _drop_token_letters(pod.spec.volumes)
        self._share_fields(pod.spec, _SPEC)
        self._share_fields(pod.status, _STATUS)
        self._share_fields(pod.metadata, _METADATA)
        structs.force_setattr(pod, "spec", self._shared("spec", pod.spec))
        structs.force_setattr(pod, "status", self._shared("status", pod.status))
        return pod

    def _share_fields(self, record: Any, names: tuple[str, ...]) -> None:  # noqa: ANN401  # frozen records
        for name in names:
            part = getattr(record, name)
            if part:
                if name in _LISTS_OF_PARTS:
                    part[:] = [self._shared(f"{name}[]", item) for item in part]
                structs.force_setattr(record, name, self._shared(name, part))

    def _shared(self, name: str, part: Any) -> Any:  # noqa: ANN401  # a record, or a list or dictionary of records
        known = self._known.setdefault(name, {})
        if len(known) > PARTS_LIMIT:
            known.clear()
        return known.setdefault(_encode(part), part)


def _drop_token_letters(volumes: list[Volume]) -> None:
    for at, volume in enumerate(volumes):
        if volume.projected is not None and volume.name.startswith(TOKEN_VOLUME):
            volumes[at] = structs.replace(volume, name=TOKEN_VOLUME)
