"""Limits on all resources that a client can consume."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one listener; the defaults suit the scheduler's port (probes, few scrapers)."""

    max_connections: int = 256
    """Connections past the accept queue, handshakes included."""
    max_waiting: int = 512
    """Accepted sockets whose TLS handshake has not begun."""
    descriptor_share: float = 1 / 8
    """Share of the file descriptors for connections, and the same again for waiting sockets."""
    accepts_per_s: float = 2000.0
    handshakes_per_s: float = 100.0
    handshake_burst: int = 100
    """Handshakes beyond the rate after a quiet time; an ECDSA one costs about 1 ms of CPU."""
    waiting_s: float = 10.0
    """Time in the accept queue."""
    handshake_s: float = 10.0
    headers_s: float = 32.0
    """From the handshake, or the first byte of a later request, to the complete head."""
    body_s: float = 32.0
    """From the head to the complete body."""
    idle_s: float = 90.0
    """Between a response and the next request."""
    send_s: float = 30.0
    """How long a client may leave its receive window full."""
    linger_s: float = 1.0
    """How long input is drained after a refusal, so that the client can read the response."""
    close_s: float = 10.0
    """For the client to receive the remaining data and to end TLS."""
    sweep_s: float = 5.0
    """Interval at which the timeouts above are checked; they may be exceeded by this much."""
    max_target_bytes: int = 8190
    max_field_bytes: int = 8190
    """Name and value of one header."""
    max_fields: int = 100
    max_head_bytes: int = 32 * 1024
    """Request line and headers together."""
    max_body_bytes: int = 64 * 1024
    max_buffered_bytes: int = 4 * 1024 * 1024
    """Request bodies of all connections together."""
    max_unaccepted_bytes: int = 16 * 1024
    """Body bytes of a request that `Application.begin` has not accepted yet; then reading pauses.
    """
    max_pipelined: int = 8
    """Requests waiting behind the one being answered; then reading pauses."""
    max_drained_bytes: int = 256 * 1024
    """Input dropped during `linger_s`; then the connection is cut."""

    def within(self, descriptors: int) -> Limits:
        """These limits, with connections capped for a process with `descriptors` descriptors."""
        share = max(int(descriptors * self.descriptor_share), 1)
        return replace(
            self,
            max_connections=min(self.max_connections, share),
            max_waiting=min(self.max_waiting, share),
        )


class BodyBudget:
    """Total request body bytes that all connections of a listener may hold."""

    __slots__ = ("_limit", "used")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0

    def take(self, size: int) -> bool:
        """Reserve memory; False if the limit would be exceeded."""
        if self.used + size > self._limit:
            return False
        self.used += size
        return True

    def release(self, size: int) -> None:
        self.used -= size
        assert self.used >= 0, "released more than was taken"
