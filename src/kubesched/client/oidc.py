"""Credentials from an OpenID Connect issuer: the `oidc` auth-provider of a kubeconfig.

Uses the ID token while it is valid, then exchanges the refresh token for a new one at the issuer's
token endpoint, found by discovery. Interactive login happens elsewhere. The caller stores rotated
tokens: `keep` is called with the changed settings.

Tokens travel only over verified TLS: with the authority from the settings if one is given, else
with the system's roots. No setting disables verification, neither issuer nor endpoint may be plain
HTTP, and a redirect to plain HTTP is rejected.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException, HTTPMessage
from typing import IO, TypeVar

import msgspec

from kubesched.base.clock import Clock
from kubesched.base.errors import CredentialsError
from kubesched.base.logs import get_logger
from kubesched.client.credentials import Proof, RenewedIdentity, is_sendable
from kubesched.client.exec_plugin import printable, redact
from kubesched.client.tls_context import Pem, TlsSettings, build_context

log = get_logger(__name__)

T = TypeVar("T")

ISSUER_URL = "idp-issuer-url"
CLIENT_ID = "client-id"
CLIENT_SECRET = "client-secret"
AUTHORITY = "idp-certificate-authority"
AUTHORITY_DATA = "idp-certificate-authority-data"
ID_TOKEN = "id-token"
REFRESH_TOKEN = "refresh-token"

EXPIRY_LEEWAY_S = 10.0
"""A token counts as expired this long before its expiry, for clock skew and request latency."""

REQUEST_DEADLINE_S = 10.0
"""Longest silence of the issuer during one request."""

RENEWAL_DEADLINE_S = 30.0
"""Longest wait for new tokens: discovery and one or two requests to the token endpoint."""

MAX_ANSWER_BYTES = 1024 * 1024
"""Maximum response size; discovery documents and tokens are a few kilobytes."""


class _Claims(msgspec.Struct):
    exp: float


class _Discovery(msgspec.Struct):
    token_endpoint: str = ""


class _Tokens(msgspec.Struct):
    id_token: str = ""
    refresh_token: str = ""


class _Refusal(msgspec.Struct):
    error: str = ""


class OidcProvider(RenewedIdentity):
    """An identity confirmed by an OpenID Connect issuer."""

    def __init__(
        self,
        config: Mapping[str, str],
        *,
        origin: str,
        clock: Clock,
        keep: Callable[[Mapping[str, str]], None] | None = None,
    ) -> None:
        """Checks the settings and reads the authority; `keep` (blocking) stores changed tokens."""
        super().__init__(clock)
        self._config = dict(config)
        self._origin = f"{origin}: auth-provider oidc"
        self._keep = keep
        self._trade_under_way: asyncio.Future[_Tokens] | None = None
        for required in (ISSUER_URL, CLIENT_ID):
            if not config.get(required):
                raise self._error(f"{required} must be set")
        self._require_https(ISSUER_URL, config[ISSUER_URL])
        self._context = self._build_context()
        if token := config.get(ID_TOKEN, ""):
            self._expires_at = self._expiry(token) - EXPIRY_LEEWAY_S
            self._proof = Proof.bearer(token)

    async def _obtain(self, *, refused: bool) -> tuple[Proof, float | None]:
        if not self._config.get(REFRESH_TOKEN):
            state = "was refused" if refused else "is missing or has expired"
            raise self._error(
                f"the {ID_TOKEN} {state}, and there is no {REFRESH_TOKEN} to get another"
            )
        # A refresh token may be valid for one use only, so a refresh is never abandoned half-way: a
        # caller that times out leaves the thread running, and the next caller joins it.
        if self._trade_under_way is None or self._trade_under_way.done():
            self._trade_under_way = asyncio.ensure_future(asyncio.to_thread(self._renew_tokens))
        try:
            async with asyncio.timeout(RENEWAL_DEADLINE_S):
                tokens = await asyncio.shield(self._trade_under_way)
        except TimeoutError:
            raise self._error(
                f"the issuer did not answer within {RENEWAL_DEADLINE_S:g} s"
            ) from None
        return Proof.bearer(tokens.id_token), self._expiry(tokens.id_token) - EXPIRY_LEEWAY_S

    def _renew_tokens(self) -> _Tokens:
        discovery = self._discover()
        tokens = self._trade(discovery.token_endpoint)
        if not tokens.id_token:
            raise self._error(
                "the issuer's answer to the refresh token holds no id_token; either the scope "
                "openid was not "
                "asked for at login, or the issuer does not return ID tokens on refresh"
            )
        self._expiry(tokens.id_token)
        changed = {**self._config, ID_TOKEN: tokens.id_token}
        if tokens.refresh_token:
            changed[REFRESH_TOKEN] = tokens.refresh_token
        self._config = changed
        if self._keep is not None:
            try:
                self._keep(changed)
            except CredentialsError as error:
                log.warning("New tokens are in use but could not be stored", err=error)
        return tokens

    def _discover(self) -> _Discovery:
        issuer = self._config[ISSUER_URL].removesuffix("/")
        url = f"{issuer}/.well-known/openid-configuration"
        discovery = self._decode(self._fetch(urllib.request.Request(url)), _Discovery, url)
        if not discovery.token_endpoint:
            raise self._error(f"{url} names no token_endpoint")
        self._require_https("token_endpoint", discovery.token_endpoint)
        return discovery

    def _trade(self, endpoint: str) -> _Tokens:
        """Try HTTP basic authentication first, then the client's name in the body.

        The standard asks servers to support the former, some support only the latter;
        golang.org/x/oauth2 probes in this order too.
        """
        client, secret = self._config[CLIENT_ID], self._config.get(CLIENT_SECRET, "")
        form = {"grant_type": "refresh_token", "refresh_token": self._config[REFRESH_TOKEN]}
        basic = f"{urllib.parse.quote_plus(client)}:{urllib.parse.quote_plus(secret)}"
        headers = {"Authorization": "Basic " + base64.b64encode(basic.encode()).decode()}
        try:
            answer = self._post(endpoint, form, headers)
        except _RefusedError:
            form["client_id"] = client
            if secret:
                form["client_secret"] = secret
            try:
                answer = self._post(endpoint, form, {})
            except _RefusedError as refusal:
                raise self._error(f"failed to refresh the token: {refusal}") from None
        return self._decode(answer, _Tokens, endpoint)

    def _post(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> bytes:
        request = urllib.request.Request(
            url,
            data=urllib.parse.urlencode(form).encode(),
            headers={"Content-Type": "application/x-www-form-urlencoded", **headers},
        )
        return self._fetch(request)

    def _fetch(self, request: urllib.request.Request) -> bytes:
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=self._context), _HttpsRedirects
        )
        try:
            with opener.open(request, timeout=REQUEST_DEADLINE_S) as answer:
                body: bytes = answer.read(MAX_ANSWER_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                if request.data is not None and 400 <= error.code < 500:
                    raise _RefusedError(self._refusal(error)) from None
                raise self._error(f"{request.full_url} answered {error.code}") from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise self._error(f"{request.full_url} cannot be reached: {_plain(reason)}") from None
        if len(body) > MAX_ANSWER_BYTES:
            raise self._error(f"{request.full_url} sent more than {MAX_ANSWER_BYTES} bytes")
        return body

    def _refusal(self, error: urllib.error.HTTPError) -> str:
        try:
            code = msgspec.json.decode(error.read(MAX_ANSWER_BYTES), type=_Refusal).error
        except (msgspec.DecodeError, UnicodeDecodeError, OSError, HTTPException):
            code = ""
        shown = f' with error "{printable(redact(code[:100], []))}"' if code else ""
        return f"the token endpoint answered {error.code}{shown}"

    def _decode(self, body: bytes, kind: type[T], url: str) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError):  # the message may quote a token
            raise self._error(f"the answer of {url} is not the JSON it should be") from None

    def _build_context(self) -> ssl.SSLContext:
        try:
            data = base64.b64decode(self._config.get(AUTHORITY_DATA, ""), validate=True)
        except binascii.Error:
            raise self._error(f"{AUTHORITY_DATA} is not valid base64") from None
        if data:
            authority = Pem(f"{self._origin}: {AUTHORITY_DATA}", data=data)
        else:
            file = self._config.get(AUTHORITY, "")
            authority = Pem(f"{self._origin}: {AUTHORITY}", file=file)
        return build_context(TlsSettings(ca=authority))

    def _expiry(self, token: str) -> float:
        parts = token.split(".")
        try:
            if len(parts) != 3 or not is_sendable(token):
                raise ValueError
            payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
            return msgspec.json.decode(payload, type=_Claims).exp
        except (ValueError, msgspec.DecodeError):
            raise self._error(f"the {ID_TOKEN} is not a JSON web token with an expiry") from None

    def _require_https(self, name: str, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise self._error(f"{name} must be an https URL")

    def _error(self, message: str) -> CredentialsError:
        return CredentialsError(f"{self._origin}: {message}")


class _RefusedError(Exception):
    """The token endpoint rejected the request."""


class _HttpsRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects of discovery, never away from TLS and never with a token in the body."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if req.data is not None or urllib.parse.urlsplit(newurl).scheme != "https":
            return None  # the redirect itself is returned, as an error
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _plain(reason: object) -> str:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {reason.verify_message}"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return str(reason)
