"""Authentication: client certificate, headers of a trusted proxy, bearer token, or anonymous.

The order is upstream's. Invalid credentials are a 401; a request without any is from the anonymous
user, whose access authorization decides.
"""

from __future__ import annotations

import hashlib
import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from kubesched.app.server.review_cache import ReviewCache
from kubesched.app.server.trust import HeaderNames, Trust
from kubesched.app.server.users import ANONYMOUS, User
from kubesched.base.clock import Clock
from kubesched.base.errors import KubeschedError, TransportError, Unauthorized
from kubesched.base.http_server.messages import Headers
from kubesched.base.logs import get_logger
from kubesched.client.rest import RestClient

log = get_logger(__name__)

REVIEW_PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
MAX_REMEMBERED_ISSUERS: Final = 1024


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """A client certificate that TLS verified against the client and proxy authorities together."""

    fields: Mapping[str, Any]
    """As decoded by `ssl`."""
    der: bytes

    def names(self, kind: str) -> list[str]:
        return [
            value for part in self.fields.get("subject", ()) for name, value in part if name == kind
        ]

    @property
    def common_name(self) -> str:
        return next(iter(self.names("commonName")), "")

    def is_expired(self, now: float) -> bool:
        return ssl.cert_time_to_seconds(str(self.fields["notAfter"])) < now


class Authenticator:
    """Authenticates requests."""

    def __init__(
        self, trust: Callable[[], Trust], tokens: TokenReviewer | None, *, clock: Clock
    ) -> None:
        self._trust = trust
        self._tokens = tokens
        self._clock = clock

    async def authenticate(self, peer: PeerCertificate | None, headers: Headers) -> User:
        """The user.

        Raises:
            Unauthorized: credentials were presented and are not valid.
        """
        if peer is not None:
            user = self._by_certificate(peer, headers)
            if user is not None:
                return user.authenticated()
        token = _bearer_token(headers)
        if token and self._tokens is not None:
            return (await self._tokens.user_of(token)).authenticated()
        if peer is not None:
            # As upstream: a certificate without a user is an error, not the anonymous user.
            raise Unauthorized("Unauthorized")
        return ANONYMOUS

    def _by_certificate(self, peer: PeerCertificate, headers: Headers) -> User | None:
        trust = self._trust()
        if peer.is_expired(self._clock.now()):
            return None
        if (
            trust.proxy_ca
            and _issued_by(peer.der, trust.proxy_ca)
            and (not trust.proxy_names or peer.common_name in trust.proxy_names)
        ):
            user = user_in_headers(headers, trust.headers)
            if user is not None:
                return user
        if not trust.client_ca or not peer.common_name:
            return None
        # TLS verified against both bundles at once; if there are two, find out which one issued it.
        if trust.proxy_ca and not _issued_by(peer.der, trust.client_ca):
            return None
        return User(name=peer.common_name, groups=tuple(peer.names("organizationName")))


def user_in_headers(headers: Headers, names: HeaderNames) -> User | None:
    """The user named by a trusted proxy."""
    name = _first(headers, names.username)
    if not name:
        return None
    groups = tuple(value for header in names.group for value in headers.get_all(header.lower()))
    extra: dict[str, tuple[str, ...]] = {}
    for header in headers:
        for prefix in names.extra_prefixes:
            if header.startswith(prefix.lower()):
                key = unquote(header[len(prefix) :])
                extra[key] = tuple(headers.get_all(header))
    uid = _first(headers, names.uid)
    return User(name=name, groups=groups, uid=uid, extra=extra)


def _first(headers: Headers, names: Sequence[str]) -> str:
    """The first non-empty value, in the order of `names`."""
    return next((value for name in names if (value := headers.get(name.lower()))), "")


def _bearer_token(headers: Headers) -> str:
    scheme, _, token = headers.get("authorization", "").strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


@lru_cache(MAX_REMEMBERED_ISSUERS)
def _issued_by(der: bytes, authorities_pem: str) -> bool:
    """Whether one of several authorities issued a certificate."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    leaf = x509.load_der_x509_certificate(der)
    for authority in x509.load_pem_x509_certificates(authorities_pem.encode()):
        try:
            leaf.verify_directly_issued_by(authority)
        except (InvalidSignature, ValueError, TypeError):
            continue
        return True
    return False


class _ReviewedUser(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class _Status(msgspec.Struct):
    authenticated: bool = False
    user: _ReviewedUser = msgspec.field(default_factory=_ReviewedUser)
    error: str = ""


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


class TokenReviewer:
    """Asks the API server (TokenReview) for a token's user; caches digests, never tokens."""

    def __init__(self, client: RestClient, *, ttl_s: float, clock: Clock) -> None:
        self._client = client
        self._cache: ReviewCache[User | None] = ReviewCache(lambda _user: ttl_s, clock=clock)

    async def user_of(self, token: str) -> User:
        """The token's owner.

        Raises:
            Unauthorized: the token is not valid, or the API server could not be asked.
        """
        subject = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        try:
            user = await self._cache.get(subject, lambda: self._ask(token))
        except KubeschedError as error:
            log.error("Unable to authenticate the request", error)
            raise Unauthorized("Unauthorized") from error
        if user is None:
            log.error("Unable to authenticate the request", "invalid bearer token")
            raise Unauthorized("Unauthorized")
        return user

    async def _ask(self, token: str) -> User | None:
        question = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        answer = await self._client.post_raw(REVIEW_PATH, json.dumps(question).encode())
        try:
            status = msgspec.json.decode(answer, type=_Review).status
        except msgspec.DecodeError as error:
            raise TransportError(f"the answer to a review cannot be understood: {error}") from error
        if not status.authenticated:
            return None
        user = status.user
        return User(
            name=user.username, groups=user.groups or (), uid=user.uid, extra=user.extra or {}
        )
