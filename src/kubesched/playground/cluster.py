"""A whole embedded cluster: store, API server on a socket, controllers, nodes, kubeconfig.

    async with EmbeddedCluster(ClusterSettings(nodes=10)) as cluster:
        ...  # kubectl --kubeconfig works now; cluster.api is the same cluster without a socket

Leaving the block stops all parts in reverse order. If a controller crashes, the `async with` block
ends with its exception instead of leaving a partial cluster running.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import ipaddress
import random
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from kubesched.base.certificates import write_private
from kubesched.base.clock import Clock, SystemClock
from kubesched.base.errors import KubeschedError
from kubesched.base.http_server.listener import Listener
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.playground import control_plane as bootstrap
from kubesched.playground import pki
from kubesched.playground.auth.access import Authorization
from kubesched.playground.client.local import LocalApi
from kubesched.playground.control_plane import build_registry
from kubesched.playground.controller_manager import ControllerOptions, ControllerSet, start_all
from kubesched.playground.kubelet.options import KubeletOptions
from kubesched.playground.server import web
from kubesched.playground.server.api_server import ApiServer
from kubesched.playground.server.memory_transport import MemoryTransport
from kubesched.playground.storage.journal import SqliteJournal
from kubesched.playground.storage.store import DEFAULT_HISTORY_LIMIT, Store

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Configuration of an embedded cluster."""

    name: str = "kubesched"
    """Name of the cluster and of its context in the kubeconfig."""

    address: str = LOOPBACK
    """Listen address. Every client must authenticate, whatever its address."""

    authorization: Authorization = "allow"
    """`allow` lets authenticated users do everything; `rbac` evaluates roles and bindings."""

    port: int = 0
    """Listen port; 0 picks a free port."""

    kubeconfig: Path | None = None
    """Path of the administrator's kubeconfig, readable only by its owner; None writes none."""

    data_dir: Path | None = None
    """Directory for persistent data; None keeps everything in memory."""

    nodes: int = 0
    """Number of simulated nodes. Shorthand for default `controllers` with that many kubelets."""

    controllers: ControllerOptions | None = None
    """Controllers and kubelets; None with `nodes=0` runs a bare API server."""

    gates: FeatureGates = DEFAULT_GATES
    """Feature gates; some enable kinds of unstable API versions."""

    history_limit: int = DEFAULT_HISTORY_LIMIT
    """Number of changes per resource that a watch may lag behind."""


class EmbeddedCluster:
    """Embedded cluster; an `async with` block starts and stops all of its parts."""

    api: LocalApi
    server: ApiServer
    controllers: ControllerSet | None = None

    def __init__(
        self,
        settings: ClusterSettings | None = None,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.settings = settings or ClusterSettings()
        self.clock = clock or SystemClock()
        self.rng = rng or random.Random(secrets.randbits(64))
        self.token = ""
        self._certificates: pki.Certificates | None = None
        self._listener: Listener | None = None
        self._stack = contextlib.AsyncExitStack()

    @property
    def _host(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        """The address at which clients on this machine reach the server."""
        host = ipaddress.ip_address(self.settings.address)
        if host.is_unspecified:
            host = ipaddress.ip_address(LOOPBACK if host.version == 4 else "::1")
        return host

    @property
    def url(self) -> str:
        host = self._host
        return f"https://{host if host.version == 4 else f'[{host}]'}:{self.port}"

    @property
    def port(self) -> int:
        assert self._listener is not None, "the cluster has not been started"
        return self._listener.port

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    def transport(
        self, *, user_agent: str = "kubesched", omits_managed_fields: bool = False
    ) -> MemoryTransport:
        """An in-process transport to this cluster, without a socket."""
        return MemoryTransport(
            self.server, user_agent=user_agent, omits_managed_fields=omits_managed_fields
        )

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        secrets_dir = self.settings.data_dir / "pki" if self.settings.data_dir is not None else None
        store, journal = self._open_store()
        if journal is not None:
            stack.push_async_callback(journal.close)
        self._certificates = pki.load_or_make(secrets_dir, self.clock.now(), self.settings.address)
        self.token = _load_or_make_token(secrets_dir)
        registry = build_registry(store, clock=self.clock, rng=self.rng, gates=self.settings.gates)
        self.api = LocalApi(registry)
        self.server = ApiServer(
            registry,
            clock=self.clock,
            rng=self.rng,
            journal=journal,
            token=self.token,
            authorization=self.settings.authorization,
        )
        await self._start_controllers(stack)
        await self._start_web(stack, self._certificates)
        certificate = self._certificates.ca_certificate.decode()
        bootstrap.publish(registry, certificate, str(self._host), self.port)
        if self.settings.kubeconfig is not None:
            stack.enter_context(held(self.settings.kubeconfig))
            write_private(self.settings.kubeconfig, self.kubeconfig())

    async def _start_web(
        self, stack: contextlib.AsyncExitStack, certificates: pki.Certificates
    ) -> None:
        settings, tls = self.settings, certificates.server_context()
        listener = self._listener = web.listen(
            self.server, settings.address, settings.port, tls=tls, clock=self.clock
        )
        group = await stack.enter_async_context(asyncio.TaskGroup())
        stack.push_async_callback(listener.close, 0.0)
        serving = group.create_task(listener.serve(), name="embedded/api server")
        stack.callback(serving.cancel)

    def _open_store(self) -> tuple[Store, SqliteJournal | None]:
        limit = self.settings.history_limit
        if self.settings.data_dir is None:
            return Store(history_limit=limit), None
        # Keys without data mean that the data was lost; starting an empty cluster would hide that.
        is_new = not (self.settings.data_dir / "pki").exists()
        journal = SqliteJournal(self.settings.data_dir, is_new=is_new)
        try:
            revision, rows = journal.load()
            store = Store.restore(rows, revision, history_limit=limit, journal=journal)
        except BaseException:
            journal.release()
            raise
        journal.start()
        return store, journal

    async def _start_controllers(self, stack: contextlib.AsyncExitStack) -> None:
        options = self.settings.controllers
        if options is None:
            if not self.settings.nodes:
                return
            options = ControllerOptions(kubelet=KubeletOptions(nodes=self.settings.nodes))
        self.controllers = start_all(self.api, self.clock, self.rng, options, self.settings.gates)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        group.create_task(self.controllers.run(), name="embedded/controllers")
        stack.callback(self.controllers.stop)

    def kubeconfig(self) -> bytes:
        """A kubeconfig for the administrator."""
        assert self._certificates is not None, "the cluster has not been started"
        name, authority = self.settings.name, self._certificates.ca_certificate
        return pki.kubeconfig(name, self.url, authority, f"{name}-admin", {"token": self.token})


@contextlib.contextmanager
def held(kubeconfig: Path) -> Iterator[None]:
    """Hold a lock on the kubeconfig path, so that no other cluster writes it.

    Raises:
        KubeschedError: another running cluster holds the lock.
    """
    kubeconfig.parent.mkdir(parents=True, exist_ok=True)
    lock = kubeconfig.with_name(f".{kubeconfig.name}.lock")
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise KubeschedError(
                f"{kubeconfig} belongs to a cluster that is running:"
                " stop it, or choose --name or --kubeconfig"
            ) from None
        yield


def _load_or_make_token(folder: Path | None) -> str:
    """A random bearer token, stored in `folder` so that kubeconfigs survive a restart."""
    if folder is None:
        return secrets.token_urlsafe(32)
    path = folder / "token"
    if path.exists():
        return path.read_text(encoding="ascii").strip()
    token = secrets.token_urlsafe(32)
    write_private(path, token.encode())
    return token
