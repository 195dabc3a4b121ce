"""Which strategy each built-in kind is written with."""

from __future__ import annotations

from kubesched.embedded.strategy import Strategy

_WORKLOAD = Strategy(tracks_generation=True)

KINDS: dict[str, Strategy] = {
    "pods": Strategy(
        tracks_generation=True, status_writes_metadata=True, returns_deleted_object=True
    ),
    "nodes": Strategy(keeps_status_on_create=True, status_writes_metadata=True),
    "deployments.apps": _WORKLOAD,
}
