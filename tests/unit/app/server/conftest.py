"""Certificates, a fake API server for reviews, and a listening server to talk to."""

import asyncio
import contextlib
import json
import ssl
import time
from dataclasses import dataclass, field

import aiohttp
import pytest

from kubesched.app.flags import RunOptions
from kubesched.app.server import self_signed
from kubesched.app.server.authentication import Authenticator, TokenReviewer
from kubesched.app.server.authorization import Authorizer
from kubesched.app.server.health import HealthPages
from kubesched.app.server.secure_server import SecureServer
from kubesched.app.server.tls import ServingTls
from kubesched.app.server.trust import Trust
from kubesched.base.clock import ManualClock, SystemClock
from kubesched.base.http_server.limits import Limits
from kubesched.base.http_server.listener import Listener
from kubesched.base.http_server.sockets import open_socket
from kubesched.playground import pki


@dataclass
class FakeReviews:
    """Answers reviews from two tables, and remembers what was asked."""

    users: dict = field(default_factory=dict)
    """Token -> user as in a TokenReview's status."""
    allowed: set = field(default_factory=set)
    """(user, verb, path)."""
    asked: list = field(default_factory=list)
    broken: Exception | None = None
    gate: asyncio.Event | None = None

    async def post_raw(self, path, body):
        review = json.loads(body)
        self.asked.append(review)
        if self.gate is not None:
            await self.gate.wait()
        if self.broken is not None:
            raise self.broken
        spec = review["spec"]
        if review["kind"] == "TokenReview":
            user = self.users.get(spec["token"])
            status = {"authenticated": user is not None, "user": user or {}}
        else:
            attributes = spec["nonResourceAttributes"]
            key = (spec["user"], attributes["verb"], attributes["path"])
            status = {"allowed": key in self.allowed}
        return json.dumps({"kind": review["kind"], "status": status}).encode()


@pytest.fixture
def reviews():
    return FakeReviews()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture(scope="session")
def certificates():
    return pki.make(time.time())


@pytest.fixture(scope="session")
def other_certificates():
    """Of an authority that has nothing to do with the first."""
    return pki.make(time.time())


@pytest.fixture(scope="session")
def serving_pair():
    return self_signed.make(time.time())


@pytest.fixture
def make_client(tmp_path):
    """TLS contexts of clients that do not check the server, with a certificate if given."""

    def make(certificates=None):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if certificates is not None:
            path = tmp_path / "client.pem"
            path.write_bytes(certificates.client_certificate + certificates.client_key)
            context.load_cert_chain(path)
        return context

    return make


@dataclass
class Running:
    listener: Listener
    trust: list
    tls: ServingTls

    @property
    def url(self):
        return f"https://127.0.0.1:{self.listener.port}"

    async def get(self, path, *, context, method="GET", **request):
        connector = aiohttp.TCPConnector(ssl=context, force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(method, f"{self.url}{path}", **request) as response,
        ):
            return response.status, await response.read(), response.headers


@pytest.fixture
async def serve(reviews, serving_pair):
    """Start a server: `await serve(pages=..., limits=..., trust=...)`."""
    async with contextlib.AsyncExitStack() as stack:
        group = await stack.enter_async_context(asyncio.TaskGroup())

        async def start(
            *,
            pages=None,
            health=None,
            limits=None,
            trust=None,
            open_paths=("/healthz", "/livez", "/readyz"),
            settings=None,
            delegates=True,
            prefixes=None,
        ):
            clock = SystemClock()
            held = [trust or Trust()]
            limits = limits or Limits()
            server = SecureServer(
                health or HealthPages(),
                pages or {},
                Authenticator(
                    lambda: held[0],
                    TokenReviewer(reviews, ttl_s=10, clock=clock) if delegates else None,
                    clock=clock,
                ),
                Authorizer(
                    reviews if delegates else None, always_allow_paths=open_paths, clock=clock
                ),
                prefixes=prefixes,
            )
            tls = ServingTls(settings or RunOptions(), lambda: held[0], serving_pair)
            listener = Listener(
                open_socket("127.0.0.1", 0),
                tls.context,
                server,
                clock=clock,
                limits=limits,
            )
            task = group.create_task(listener.serve())
            stack.push_async_callback(listener.close, 1.0)
            stack.callback(task.cancel)
            return Running(listener, held, tls)

        yield start
