"""coordination.k8s.io/v1: leases. Times are RFC 3339 text with microseconds."""

from __future__ import annotations

from kubesched.api.meta import ObjectMeta, Record, constant


class LeaseSpec(Record):
    """Holder, duration, and times of acquisition and renewal."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None
    strategy: str | None = None
    preferred_holder: str | None = None


class Lease(Record):
    """An expiring lock, used for leader election and node heartbeats."""

    kind: str = constant("Lease")
    api_version: str = constant("coordination.k8s.io/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()
