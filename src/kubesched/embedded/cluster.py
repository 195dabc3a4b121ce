"""A whole embedded cluster: store, API server on a loopback socket, kubeconfig."""

from __future__ import annotations

import base64
import random
import secrets
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from kubesched.clock import Clock, SystemClock
from kubesched.embedded import pki
from kubesched.embedded.bootstrap import bootstrap
from kubesched.embedded.kinds import KINDS
from kubesched.embedded.local import LocalApi
from kubesched.embedded.objects import encode
from kubesched.embedded.registry import Registry
from kubesched.embedded.resources import ResourceCatalog
from kubesched.embedded.server import ApiServer
from kubesched.embedded.store import Store
from kubesched.embedded.web import WebServer

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """How an embedded cluster is set up."""

    port: int = 0
    """Where to listen on loopback; 0 takes a free port."""
    kubeconfig: Path | None = None
    """Where to write the kubeconfig."""


class EmbeddedCluster:
    """Start with `async with`; everything is stopped on the way out."""

    def __init__(
        self,
        settings: ClusterSettings,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.rng = rng or random.Random(secrets.randbits(64))
        self.token = secrets.token_urlsafe(32)
        self.registry = Registry(
            Store(), ResourceCatalog(), clock=self.clock, rng=self.rng, kinds=KINDS
        )
        self.api = LocalApi(self.registry)
        self.server = ApiServer(self.registry, clock=self.clock, rng=self.rng, token=self.token)
        self.certificates = pki.load_or_make(None, self.clock.now())
        self._web = WebServer(
            self.server,
            token=self.token,
            tls=self.certificates.server_context(),
            trusts_certificates=True,
        )

    @property
    def url(self) -> str:
        return f"https://{LOOPBACK}:{self._web.port}"

    async def __aenter__(self) -> Self:
        bootstrap(self.registry)
        await self._web.start(LOOPBACK, self.settings.port)
        if self.settings.kubeconfig is not None:
            pki.write_private(self.settings.kubeconfig, self.kubeconfig())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._web.stop()

    def kubeconfig(self) -> bytes:
        """A kubeconfig for the administrator, in JSON (which is YAML)."""
        ca = base64.b64encode(self.certificates.ca_certificate).decode()
        return encode(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [
                    {
                        "name": "kubesched",
                        "cluster": {"server": self.url, "certificate-authority-data": ca},
                    }
                ],
                "users": [{"name": "kubesched-admin", "user": {"token": self.token}}],
                "contexts": [
                    {
                        "name": "kubesched",
                        "context": {"cluster": "kubesched", "user": "kubesched-admin"},
                    }
                ],
                "current-context": "kubesched",
            }
        )
