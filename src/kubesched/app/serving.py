"""Builds the HTTPS server of a scheduler process from its flags.

The API server authenticates and authorizes clients, through separate credentials
(`--authentication-kubeconfig`, `--authorization-kubeconfig`) or else the pod's own. Without either,
only pages that need no authorization are served.

The port is opened, and flags and files are checked, immediately. A self-signed certificate is made
while the scheduler starts; clients that connect meanwhile wait in the kernel's backlog.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Self

from kubesched.api.core_v1 import Pod
from kubesched.app.server import self_signed, shadow_page, tls
from kubesched.app.server.access_metrics import AccessMetrics
from kubesched.app.server.authentication import Authenticator, TokenReviewer
from kubesched.app.server.authorization import Authorizer
from kubesched.app.server.health import Check, HealthMetrics, HealthPages
from kubesched.app.server.metrics_pages import MetricsPage, ResourcesPage
from kubesched.app.server.pages import ConfigPage, FlagsPage, PluginsPage, StatusPage
from kubesched.app.server.profiling import DebugPages
from kubesched.app.server.requests import Page
from kubesched.app.server.secure_server import SecureServer
from kubesched.app.server.shadow_page import ShadowPage
from kubesched.app.server.tls import ServingTls
from kubesched.app.server.trust import TrustSource
from kubesched.app.settings import RunSettings
from kubesched.base.certificates import Pair
from kubesched.base.clock import Clock
from kubesched.base.errors import CredentialsError
from kubesched.base.http_server.listener import Listener
from kubesched.base.http_server.sockets import open_socket
from kubesched.base.logs import get_logger
from kubesched.base.metrics.registry import MetricsRegistry
from kubesched.base.rate_limit import TokenBucket
from kubesched.client import in_cluster
from kubesched.client.client_config import load_config
from kubesched.client.pool import HttpTransport, PoolSettings
from kubesched.client.rest import RestClient, user_agent
from kubesched.config.output import to_plain
from kubesched.scheduler.plugin_profile import PluginProfile
from kubesched.scheduler.shadows import Shadows

if TYPE_CHECKING:
    from kubesched.app.page_serving import PageOnPort
    from kubesched.insight.page.source import Source

log = get_logger(__name__)

REVIEW_QPS, REVIEW_BURST = 200.0, 400
REVIEW_DEADLINE_S = 10.0
TLS_CHECK_S = 5.0
SHUTDOWN_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposed:
    """What the server exposes."""

    registry: MetricsRegistry
    sli_registry: MetricsRegistry
    healthz: tuple[Check, ...]
    livez: tuple[Check, ...]
    readyz: tuple[Check, ...]
    pods: Callable[[], Iterable[Pod]]
    is_active: Callable[[], bool]
    shadows: Callable[[], Shadows | None]
    """Profiles that decide beside live ones; None before the scheduler exists."""
    plugins: Callable[[], PluginProfile]
    page: Callable[[], Source | None] | None = None
    """Source of the page; None if it is not served."""


class Serving:
    """The server and its background updates.

    Enter it to load and listen, `run` it, leave it to close. Created on the scheduling loop;
    entered, run and left on the control thread's.
    """

    def __init__(
        self, settings: RunSettings, exposed: Exposed, *, clock: Clock, random: Random
    ) -> None:
        """Opens the port and reads certificates.

        Raises:
            CredentialsError: certificates or kubeconfigs cannot be used.
            OSError: the port cannot be opened.
        """
        options = settings.options
        self._clock, self._random = clock, random
        self._scheduling_loop = asyncio.get_running_loop()
        self._transports: dict[str, HttpTransport] = {}
        authentication = self._client(options.authentication_kubeconfig, "authentication")
        authorization = self._client(options.authorization_kubeconfig, "authorization")
        self.trust = TrustSource(options, authentication)
        tls.check(options)
        self._settings, self._exposed = settings, exposed
        if authorization is None:
            log.warningf(
                "No authorization-kubeconfig provided, so SubjectAccessReview of authorization "
                "tokens won't work."
            )
        self._reviewers = authentication, authorization
        self._pair: Pair | None = None
        if options.cert_dir and not options.tls_cert_file:
            # The certificate is stored in a folder, so check the folder before anything starts.
            self._pair = self_signed.load_or_make(options.cert_dir, clock.now())
        self._socket = open_socket(
            options.bind_address, options.secure_port, share_port=options.permit_port_sharing
        )
        self._address = _shown(self._socket)
        self._tls: ServingTls | None = None
        if options.tls_cert_file:
            self._tls = ServingTls(options, lambda: self.trust.current)
        self._listener: Listener | None = None
        self._page: PageOnPort | None = None

    def _client(self, kubeconfig: str, purpose: str) -> RestClient | None:
        if not kubeconfig and not in_cluster.is_possible(os.environ):
            return None
        try:
            connection = load_config(kubeconfig).connection
        except CredentialsError as error:
            raise CredentialsError(
                f"failed to get delegated {purpose} kubeconfig: {error}"
            ) from error
        if kubeconfig not in self._transports:
            self._transports[kubeconfig] = HttpTransport(
                connection, settings=PoolSettings(max_connections=8)
            )
        return RestClient(
            self._transports[kubeconfig],
            user_agent=user_agent(f"{purpose}"),
            limiter=TokenBucket(REVIEW_QPS, REVIEW_BURST, clock=self._clock),
            clock=self._clock,
            random=self._random,
            deadline_s=REVIEW_DEADLINE_S,
        )

    def _make_server(self) -> SecureServer:
        settings, exposed = self._settings, self._exposed
        authentication, authorization = self._reviewers
        options = settings.options
        tokens = (
            None
            if authentication is None
            else TokenReviewer(
                authentication,
                ttl_s=options.authentication_token_webhook_cache_ttl,
                clock=self._clock,
            )
        )
        open_paths = options.authorization_always_allow_paths
        if exposed.page is not None:
            # Imported only if enabled: the page imports the planner and the embedded control plane.
            from kubesched.app.page_serving import OPEN_PATHS, PATH, PageOnPort

            open_paths += OPEN_PATHS
        authorizer = Authorizer(
            authorization,
            always_allow_paths=open_paths,
            allowed_ttl_s=options.authorization_webhook_cache_authorized_ttl,
            denied_ttl_s=options.authorization_webhook_cache_unauthorized_ttl,
            clock=self._clock,
        )
        pages, prefixes = self._pages(settings, exposed)
        pages["/debug/plugins"] = PluginsPage(exposed.plugins)
        if settings.config.has_shadows:
            pages[shadow_page.PATH] = ShadowPage(exposed.shadows, authorizer)
        if exposed.page is not None:
            self._page = PageOnPort(exposed.page, authorizer)
            pages[PATH] = self._page
            prefixes = {f"{PATH}/": self._page, **prefixes}
        return SecureServer(
            HealthPages(
                exposed.healthz, exposed.livez, exposed.readyz, HealthMetrics(exposed.sli_registry)
            ),
            pages,
            Authenticator(lambda: self.trust.current, tokens, clock=self._clock),
            authorizer,
            prefixes=prefixes,
            metrics=AccessMetrics(exposed.registry, self._clock),
        )

    def _pages(
        self, settings: RunSettings, exposed: Exposed
    ) -> tuple[dict[str, Page], dict[str, Page]]:
        started = self._clock.now()
        pages: dict[str, Page] = {
            "/metrics": MetricsPage(exposed.registry, started),
            "/metrics/slis": MetricsPage(exposed.sli_registry, started),
            "/metrics/resources": ResourcesPage(exposed.pods, exposed.is_active, started),
            "/configz": ConfigPage(to_plain(settings.config, settings.gates.reference)),
        }
        if settings.gates.ComponentFlagz:
            pages["/flagz"] = FlagsPage(settings.options.shown(), self._random)
        if settings.gates.ComponentStatusz:
            # Upstream: only what is registered before this page is listed, without pages below
            # others.
            shown = sorted(
                {"/healthz", "/livez", "/readyz", *pages} - {"/metrics/slis", "/metrics/resources"}
            )
            pages["/statusz"] = StatusPage(
                started, shown, settings.gates.versions, self._clock, self._random
            )
        prefixes: dict[str, Page] = {}
        if settings.config.enable_profiling:
            prefixes["/debug/"] = DebugPages((self._scheduling_loop,))
        return pages, prefixes

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    async def __aenter__(self) -> Self:
        return self

    async def run(self) -> None:
        """Serve until cancelled."""
        await asyncio.to_thread(self._prepare)
        await self.trust.load()
        self._tls = self._tls or ServingTls(
            self._settings.options, lambda: self.trust.current, self._pair
        )
        self._tls.refresh()
        self._listener = Listener(
            self._socket, self._tls.context, self._make_server(), clock=self._clock
        )
        log.infof("Serving securely on %s", self._address)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listener.serve(), name="serving")
            group.create_task(self._watch_tls(), name="serving certificates")
            group.create_task(
                self.trust.keep_current(self._authorities_changed), name="client authorities"
            )

    def _prepare(self) -> None:
        """Make a self-signed certificate, which is slow, unless one is configured."""
        options = self._settings.options
        if not options.tls_cert_file and self._pair is None:
            self._pair = self_signed.make(self._clock.now())
            log.infof("Generated self-signed cert in-memory")

    async def _watch_tls(self) -> None:
        assert self._tls is not None
        while True:
            await asyncio.sleep(TLS_CHECK_S)
            self._tls.refresh()

    def _authorities_changed(self) -> None:
        assert self._tls is not None
        assert self._listener is not None
        self._tls.refresh()
        self._listener.drop_idle()

    async def __aexit__(self, *_error: object) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for transport in self._transports.values():
                stack.push_async_callback(transport.aclose)
            self._socket.close()
            if self._listener is not None:
                log.infof("Stopped listening on %s", self._address)
                log.info("[graceful-termination] secure server has stopped listening")
                await self._listener.close(SHUTDOWN_S)
                log.info("[graceful-termination] secure server is exiting")
            if self._page is not None:
                await self._page.aclose()


def _shown(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
