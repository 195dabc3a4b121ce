"""The oidc auth-provider against a real issuer on loopback: discovery, refresh, rotation, and TLS that is verified."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import urllib.parse
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from kubesched.base.errors import CredentialsError
from kubesched.client.client_config import load_config
from kubesched.client.oidc import EXPIRY_LEEWAY_S, OidcProvider

REFRESH = "refresh-token-hunter2"
CLIENT_SECRET = "client-secret-hunter2"


def id_token(expiry: float, subject: str = "jane") -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'sub': subject, 'exp': expiry})}.{part('signature')}"


class Issuer:
    """An OpenID Connect issuer that a test can bend."""

    def __init__(self) -> None:
        self.url = ""
        self.answer: dict[str, object] = {}
        self.status = 200
        self.basic_only = True
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.discovery: dict[str, object] | None = None

    async def metadata(self, request: web.Request) -> web.Response:
        document = (
            {"token_endpoint": f"{self.url}/token"} if self.discovery is None else self.discovery
        )
        return web.json_response(document)

    async def token(self, request: web.Request) -> web.Response:
        form = dict(urllib.parse.parse_qsl(await request.text(), keep_blank_values=True))
        how = request.headers.get("Authorization", "")
        self.requests.append((how, form))
        if self.status == 200 and bool(how) != self.basic_only:
            return web.json_response({"error": "invalid_client"}, status=401)
        return web.json_response(self.answer, status=self.status)


@pytest.fixture
async def issuer(server_context: ssl.SSLContext):
    issuer = Issuer()
    application = web.Application()
    application.router.add_get("/realm/.well-known/openid-configuration", issuer.metadata)
    application.router.add_post("/realm/token", issuer.token)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_context)
    await site.start()
    port = runner.addresses[0][1]
    issuer.url = f"https://localhost:{port}/realm"
    yield issuer
    await runner.cleanup()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def settings(issuer, authority):
    return {
        "idp-issuer-url": issuer.url,
        "client-id": "kube rnetes",
        "client-secret": CLIENT_SECRET,
        "refresh-token": REFRESH,
        "idp-certificate-authority-data": base64.b64encode(authority.certificate).decode(),
    }


@pytest.fixture
def provider(settings, clock):
    def build(*, keep=None, without=(), **changes) -> OidcProvider:
        config = {k: v for k, v in {**settings, **changes}.items() if k not in without}
        return OidcProvider(config, origin="here", clock=clock, keep=keep)

    return build


async def token_of(identity: OidcProvider) -> str:
    return (await identity.current()).authorization.removeprefix("Bearer ")


async def test_a_valid_token_is_used_without_asking_anybody(provider, issuer, clock):
    token = id_token(clock.now() + 3600)
    identity = provider(**{"id-token": token})
    assert await token_of(identity) == token
    assert issuer.requests == []


async def test_a_token_about_to_expire_is_traded_for_a_new_one(provider, issuer, clock):
    old, new = id_token(clock.now() + 60), id_token(clock.now() + 3600, "new")
    issuer.answer = {"id_token": new}
    identity = provider(**{"id-token": old})
    clock.advance(60 - EXPIRY_LEEWAY_S)
    assert await token_of(identity) == old
    clock.advance(0.1)
    assert await token_of(identity) == new
    ((how, form),) = issuer.requests
    assert how == "Basic " + base64.b64encode(f"kube+rnetes:{CLIENT_SECRET}".encode()).decode()
    assert form == {"grant_type": "refresh_token", "refresh_token": REFRESH}


async def test_an_issuer_that_wants_the_client_in_the_body_gets_it(provider, issuer, clock):
    issuer.basic_only = False
    issuer.answer = {"id_token": id_token(clock.now() + 3600)}
    assert await token_of(provider()) == issuer.answer["id_token"]
    (_, first), (how, second) = issuer.requests
    assert "client_id" not in first
    assert how == ""
    assert (second["client_id"], second["client_secret"]) == ("kube rnetes", CLIENT_SECRET)


async def test_many_requests_trade_once(provider, issuer, clock):
    issuer.answer = {"id_token": id_token(clock.now() + 3600)}
    identity = provider()
    await asyncio.gather(*(identity.current() for _ in range(10)))
    assert len(issuer.requests) == 1


async def test_who_gives_up_waiting_does_not_waste_the_refresh_token(provider, issuer, clock):
    issuer.answer = {"id_token": id_token(clock.now() + 3600), "refresh_token": "second"}
    identity = provider()
    waiting = asyncio.create_task(identity.current())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await token_of(identity) == issuer.answer["id_token"]
    assert len(issuer.requests) == 1


async def test_a_refused_token_is_replaced(provider, issuer, clock):
    identity = provider(**{"id-token": id_token(clock.now() + 3600)})
    issuer.answer = {"id_token": id_token(clock.now() + 3600, "new")}
    assert await identity.renew()
    assert await token_of(identity) == issuer.answer["id_token"]


def stored_settings(path: str) -> dict[str, str]:
    return yaml.safe_load(Path(path).read_text())["users"][0]["user"]["auth-provider"]["config"]


async def test_rotated_tokens_are_stored_in_the_kubeconfig(write_config, settings, issuer, clock):
    path = write_config("a", user={"auth-provider": {"name": "oidc", "config": settings}})
    issuer.answer = {"id_token": id_token(clock.now() + 3600), "refresh_token": "second"}
    config = load_config(path, clock=clock, environment={})
    assert await config.connection.credentials.headers() == {
        "Authorization": f"Bearer {issuer.answer['id_token']}"
    }
    stored = stored_settings(path)
    assert stored == {**settings, "id-token": issuer.answer["id_token"], "refresh-token": "second"}


async def test_a_kubeconfig_that_cannot_be_written_is_no_reason_to_fail(
    provider, issuer, clock, told
):
    def keep(config):
        raise CredentialsError("read-only file system")

    issuer.answer = {"id_token": id_token(clock.now() + 3600)}
    assert await token_of(provider(keep=keep)) == issuer.answer["id_token"]
    assert "read-only file system" in told()


async def test_authority_from_a_file(provider, issuer, clock, authority, tmp_path):
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    issuer.answer = {"id_token": id_token(clock.now() + 3600)}
    identity = provider(
        without=("idp-certificate-authority-data",),
        **{"idp-certificate-authority": str(tmp_path / "ca.crt")},
    )
    assert await token_of(identity) == issuer.answer["id_token"]


async def test_without_an_authority_the_system_decides_and_refuses(provider, issuer):
    identity = provider(without=("idp-certificate-authority-data",))
    with pytest.raises(CredentialsError, match="its certificate is not trusted"):
        await identity.current()
    assert issuer.requests == []


async def test_another_authority_is_refused(provider, issuer, other_authority):
    data = base64.b64encode(other_authority.certificate).decode()
    with pytest.raises(CredentialsError, match="its certificate is not trusted"):
        await provider(**{"idp-certificate-authority-data": data}).current()
    assert issuer.requests == []


@pytest.mark.parametrize(
    ("changes", "without", "expected"),
    [
        pytest.param({}, ("idp-issuer-url",), "idp-issuer-url must be set", id="no issuer"),
        pytest.param({}, ("client-id",), "client-id must be set", id="no client"),
        pytest.param(
            {"idp-issuer-url": "http://issuer.test"},
            (),
            "idp-issuer-url must be an https URL",
            id="plain issuer",
        ),
        pytest.param(
            {"id-token": f"{REFRESH}.x.y"},
            (),
            "the id-token is not a JSON web token",
            id="odd token",
        ),
        pytest.param(
            {"id-token": REFRESH}, (), "the id-token is not a JSON web token", id="no token at all"
        ),
        pytest.param(
            {"idp-certificate-authority-data": "!"},
            (),
            "idp-certificate-authority-data is not valid base64",
            id="odd authority",
        ),
        pytest.param(
            {"idp-certificate-authority": "/no/ca"},
            ("idp-certificate-authority-data",),
            "idp-certificate-authority /no/ca cannot be used: No such file",
            id="missing authority file",
        ),
    ],
)
def test_broken_settings_are_refused_by_name(provider, changes, without, expected):
    with pytest.raises(CredentialsError) as caught:
        provider(without=without, **changes)
    assert str(caught.value).startswith("here: auth-provider oidc: ")
    assert expected in str(caught.value)
    assert REFRESH not in str(caught.value)


async def test_an_expired_token_without_refresh_token_is_an_error(provider, clock):
    identity = provider(without=("refresh-token",), **{"id-token": id_token(clock.now() - 1)})
    with pytest.raises(CredentialsError, match="there is no refresh-token to get another"):
        await identity.current()


@pytest.mark.parametrize(
    ("status", "answer", "discovery", "expected"),
    [
        pytest.param(
            400,
            {"error": "invalid_grant", "error_description": f"token {REFRESH} was revoked"},
            None,
            'the token endpoint answered 400 with error "invalid_grant"',
            id="the refresh token is no longer good",
        ),
        pytest.param(503, {}, None, "/realm/token answered 503", id="the issuer is ill"),
        pytest.param(
            200, {"access_token": REFRESH}, None, "holds no id_token", id="no ID token comes back"
        ),
        pytest.param(
            200, {"id_token": REFRESH}, None, "is not a JSON web token", id="an odd one comes back"
        ),
        pytest.param(
            200, {"id_token": [REFRESH]}, None, "is not the JSON it should be", id="not even text"
        ),
        pytest.param(200, {}, {}, "names no token_endpoint", id="no endpoint is named"),
        pytest.param(
            200,
            {},
            {"token_endpoint": "http://localhost/token"},
            "token_endpoint must be an https URL",
            id="the endpoint is plain HTTP",
        ),
    ],
)
async def test_what_the_issuer_can_do_wrong(provider, issuer, status, answer, discovery, expected):
    issuer.status, issuer.answer, issuer.discovery = status, answer, discovery
    with pytest.raises(CredentialsError) as caught:
        await provider().current()
    assert expected in str(caught.value)
    assert REFRESH not in str(caught.value)
    assert CLIENT_SECRET not in str(caught.value)


async def test_an_unreachable_issuer_is_an_error(provider):
    identity = provider(**{"idp-issuer-url": "https://localhost:1/realm"})
    with pytest.raises(CredentialsError, match="cannot be reached: Connection refused"):
        await identity.current()


async def test_a_redirection_to_plain_http_is_refused(server_context, provider):
    async def away(request: web.Request) -> web.Response:
        raise web.HTTPFound("http://localhost/elsewhere")

    application = web.Application()
    application.router.add_get("/.well-known/openid-configuration", away)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_context).start()
    try:
        identity = provider(**{"idp-issuer-url": f"https://localhost:{runner.addresses[0][1]}"})
        with pytest.raises(CredentialsError, match="openid-configuration answered 302"):
            await identity.current()
    finally:
        await runner.cleanup()
