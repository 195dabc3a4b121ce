"""The clients of a scheduler process: shared connections, separate rate limits, event lane."""

from __future__ import annotations

import platform
from collections.abc import Callable
from random import Random
from typing import Self

from kubesched.api.protobuf import CONTENT_TYPE as PROTOBUF
from kubesched.base.clock import Clock, SystemClock
from kubesched.base.rate_limit import TokenBucket
from kubesched.client.events import EventBroadcaster
from kubesched.client.metrics import ClientMetrics, HostMetrics
from kubesched.client.pool import HttpTransport, PoolSettings
from kubesched.client.rest import RestClient, user_agent
from kubesched.client.transport import DEFAULT_DEADLINE_S, ConnectionConfig, Transport

JSON = "application/json"
LOCK_CONNECTIONS = 4
"""Connections of the leader lock: one renewal at a time, plus spares for hanging requests."""


class Connections:
    """Clients that share connections but not rate limits: events yield to bindings.

    The leader lock shares neither: its renewals must get through when everything else is stuck.
    """

    def __init__(
        self,
        transport: Transport,
        lock_transport: Transport,
        make_limiter: Callable[[], TokenBucket],
        *,
        clock: Clock,
        random: Random,
        host_name: str,
        prefers_protobuf: bool = False,
        reference: str = "",
    ) -> None:
        """`prefers_protobuf`: send bindings and events as protobuf if the server accepts it.

        `reference` is the kube-scheduler release that the user agent names.
        """
        self._reference = reference
        self._transport, self._lock_transport = transport, lock_transport
        self._make_limiter = make_limiter
        self._clock, self._random = clock, random
        self._prefers_protobuf = prefers_protobuf
        self.may_write: Callable[[], bool] = lambda: True
        """Called right before the main client sends a write."""
        self.main = self._client(
            transport, "scheduler", DEFAULT_DEADLINE_S, may_write=lambda: self.may_write()
        )
        self.events = EventBroadcaster(
            self._client(transport, "scheduler", DEFAULT_DEADLINE_S),  # spares the main rate limit
            clock=clock,
            rng=random,
            host_name=host_name,
            is_urgent=lambda: self.main.under_way > 0,
        )

    def lock_client(self, deadline_s: float) -> RestClient:
        """The leader lock's client, on separate connections; usable on another event loop."""
        return self._client(self._lock_transport, "leader-election", deadline_s)

    async def close_lock(self) -> None:
        """Close the leader lock's connections, on the loop that used them."""
        await self._lock_transport.aclose()

    def _client(
        self,
        transport: Transport,
        component: str,
        deadline_s: float,
        may_write: Callable[[], bool] | None = None,
    ) -> RestClient:
        return RestClient(
            transport,
            user_agent=user_agent(component, self._reference),
            limiter=self._make_limiter(),
            clock=self._clock,
            random=self._random,
            deadline_s=deadline_s,
            prefers_protobuf=self._prefers_protobuf,
            may_write=may_write,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._transport.aclose()


def connections_to(
    connection: ConnectionConfig,
    *,
    qps: float = 50.0,
    burst: int = 100,
    clock: Clock | None = None,
    random: Random | None = None,
    metrics: ClientMetrics | None = None,
    content_type: str = JSON,
    lock_connection: ConnectionConfig | None = None,
    reference: str = "",
) -> Connections:
    """HTTP connections, opened on demand; `content_type` is as in the configuration.

    `lock_connection` is the same server, with credentials that another event loop may use.
    """
    clock = clock or SystemClock()
    host = f"{connection.host}:{connection.port}"
    measured = None if metrics is None else HostMetrics(host, metrics)
    waits = None if measured is None else measured.waits
    transport = HttpTransport(connection, metrics=measured)
    lock_transport = HttpTransport(
        lock_connection or connection,
        settings=PoolSettings(max_connections=LOCK_CONNECTIONS),
        metrics=measured,
    )
    return Connections(
        transport,
        lock_transport,
        lambda: TokenBucket(qps, burst, clock=clock, waits=waits),
        clock=clock,
        random=random or Random(),
        host_name=platform.node(),
        prefers_protobuf=content_type == PROTOBUF,
        reference=reference,
    )
