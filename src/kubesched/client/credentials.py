"""Authentication to the API server: headers, client certificates, impersonation, and renewal.

Provides the object that a transport asks before each request (`ClientCredentials`) and the simple
identities behind it: a fixed token or password, and a rotated token file. The identity that runs a
program to obtain credentials is in `exec_plugin`, based on `RenewedIdentity`.
`client_config` assembles the pieces.

Invariants:

* A request with nothing due costs two comparisons: files are checked at most every ten seconds, in
  a thread, by one request at a time, while the others use the present credentials.
* `headers()` returns the same mapping until something changed, and `generation` grows exactly when
  the TLS context was replaced.
* Working credentials are kept until newer ones are valid: an unreadable file or a failing plugin is
  reported and retried, and never discards credentials that may still be good.
* A `Proof` shows no secret in its `repr`; errors name files and fields, never contents.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from kubesched.base.clock import Clock
from kubesched.base.errors import CredentialsError
from kubesched.base.logs import get_logger
from kubesched.base.single_flight import SingleFlight
from kubesched.client.tls_context import FileSignature, RotatingTls, signature
from kubesched.client.transport import HeaderValues

log = get_logger(__name__)

T = TypeVar("T")

LOOK_INTERVAL_S = 10.0
"""Minimum interval between file checks: notices a rotation soon, at no measurable cost."""

REREAD_INTERVAL_S = 60.0
"""Token files are reread this often even if `stat` shows no change, as in client-go."""

FILE_DEADLINE_S = 5.0
"""Longest wait for a file check; a hanging network mount must not block requests."""

FAILURE_PAUSE_S = 2.0
"""How long a failure to obtain credentials is cached, so that a burst of requests does not start
a burst of processes.
"""

RENEWAL_PAUSE_S = 10.0
"""Minimum interval between renewals caused by 401 responses: a server that refuses everything
must not make us start a plugin per request.
"""


@dataclass(frozen=True, slots=True)
class Proof:
    """Proof of an identity: an Authorization header, a client certificate, or both."""

    authorization: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)

    @classmethod
    def bearer(cls, token: str) -> Proof:
        return cls(f"Bearer {token}")

    @classmethod
    def basic(cls, username: str, password: str) -> Proof:
        return cls("Basic " + base64.b64encode(f"{username}:{password}".encode()).decode())


class Identity(Protocol):
    """A source of proofs."""

    async def current(self) -> Proof:
        """The current proof; the same object while unchanged. Raises `CredentialsError`."""
        ...

    async def renew(self) -> bool:
        """Look for a newer proof after the server refused; True if there is one to try."""
        ...


class FixedIdentity:
    """A proof that never changes."""

    def __init__(self, proof: Proof) -> None:
        self._proof = proof

    async def current(self) -> Proof:
        return self._proof

    async def renew(self) -> bool:
        return False


class TokenFile:
    """A bearer token in a file that others rewrite, as kubelet does for service accounts."""

    def __init__(self, path: str, *, origin: str, clock: Clock, fallback: str = "") -> None:
        """Reads the file at once; `fallback` is used while it cannot be read."""
        self._path = path
        self._origin = origin
        self._clock = clock
        self._signature: FileSignature | None = None
        self._look_at = self._reread_at = 0.0
        try:
            self._signature, token = self._read()
        except CredentialsError:
            if not fallback:
                raise
            token = fallback
        self._proof = Proof.bearer(token)
        self._plan()

    async def current(self) -> Proof:
        now = self._clock.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_INTERVAL_S  # before the first await: only this task checks
            try:
                await self._look(anyway=now >= self._reread_at)
            except CredentialsError as error:
                log.warning("Unable to rotate token, the last one stays in use", err=error)
        return self._proof

    async def renew(self) -> bool:
        before = self._proof
        try:
            await self._look(anyway=True)
        except CredentialsError as error:
            log.warning("Token not renewed after the server refused it", err=error)
        return self._proof is not before

    async def _look(self, *, anyway: bool) -> None:
        known = None if anyway else self._signature
        changed = await in_thread(lambda: self._read_if_changed(known), f"token file {self._path}")
        if changed is None:
            return
        self._signature, token = changed
        self._plan()
        proof = Proof.bearer(token)
        if proof != self._proof:
            self._proof = proof

    def _plan(self) -> None:
        now = self._clock.monotonic()
        self._look_at, self._reread_at = now + LOOK_INTERVAL_S, now + REREAD_INTERVAL_S

    def _read_if_changed(self, known: FileSignature | None) -> tuple[FileSignature, str] | None:
        try:
            if known is not None and signature(self._path) == known:
                return None
        except OSError as error:
            raise self._unusable(error.strerror or type(error).__name__) from error
        return self._read()

    def _read(self) -> tuple[FileSignature, str]:
        try:
            before = signature(self._path)
            with open(self._path, encoding="utf-8") as file:
                token = file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise self._unusable(reason or type(error).__name__) from error
        if not token:
            raise self._unusable("it is empty")
        if not is_sendable(token):
            raise self._unusable("it contains characters that cannot be sent in a header")
        return before, token

    def _unusable(self, reason: str) -> CredentialsError:
        return CredentialsError(f"{self._origin}: token file {self._path} cannot be used: {reason}")


class RenewedIdentity:
    """An identity that is slow to obtain: cached until it expires, renewed by one caller at a time.

    Subclasses implement `_obtain`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._flight: SingleFlight[Proof] = SingleFlight()
        self._proof: Proof | None = None
        self._expires_at: float | None = None
        self._failure: CredentialsError | None = None
        self._retry_at = 0.0
        self._renewable_at = 0.0

    async def current(self) -> Proof:
        if self._proof is not None and not self._has_expired():
            return self._proof
        if self._failure is not None and self._clock.monotonic() < self._retry_at:
            raise CredentialsError(str(self._failure)) from self._failure
        return await self._flight.run(self._replace)

    async def renew(self) -> bool:
        before = self._proof
        if self._flight.is_under_way or self._clock.monotonic() >= self._renewable_at:
            try:
                await self._flight.run(self._replace_refused)
            except CredentialsError as error:
                log.warning("Credentials not renewed after the server refused them", err=error)
        return self._proof is not before

    async def _obtain(self) -> tuple[Proof, float | None]:
        """A proof and its expiry in wall-clock seconds, or None for never.

        Raises `CredentialsError`.
        """
        raise NotImplementedError

    def _has_expired(self) -> bool:
        return self._expires_at is not None and self._clock.now() > self._expires_at

    async def _replace_refused(self) -> Proof:
        self._renewable_at = self._clock.monotonic() + RENEWAL_PAUSE_S
        return await self._replace()

    async def _replace(self) -> Proof:
        try:
            proof, self._expires_at = await self._obtain()
        except CredentialsError as error:
            self._failure, self._retry_at = error, self._clock.monotonic() + FAILURE_PAUSE_S
            raise
        self._failure = None
        if proof != self._proof:
            self._proof = proof
        return self._proof


class ClientCredentials:
    """Implements `transport.Credentials`: identity, TLS context and impersonation."""

    def __init__(
        self,
        *,
        clock: Clock,
        tls: RotatingTls | None = None,
        identity: Identity | None = None,
        impersonation: HeaderValues | None = None,
    ) -> None:
        self.generation = 0
        self._clock = clock
        self._tls = tls
        self._identity = identity or FixedIdentity(Proof())
        self._impersonation: Mapping[str, str | tuple[str, ...]] = impersonation or {}
        self._proof = Proof()
        self._presented = (b"", b"")
        self._headers: HeaderValues = self._impersonation
        self._look_at = clock.monotonic() + LOOK_INTERVAL_S

    async def headers(self) -> HeaderValues:
        now = self._clock.monotonic()
        if self._tls is not None and now >= self._look_at:
            self._look_at = now + LOOK_INTERVAL_S  # before the first await: only this task checks
            await self._look_at_files(self._tls)
        proof = await self._identity.current()
        if proof is not self._proof:
            await self._adopt(proof)
        return self._headers

    def ssl_context(self) -> ssl.SSLContext | None:
        return self._tls.context if self._tls is not None else None

    async def refresh(self) -> bool:
        before = self.generation
        if self._tls is not None:
            await self._look_at_files(self._tls)
        return await self._identity.renew() or self.generation != before

    async def _look_at_files(self, tls: RotatingTls) -> None:
        try:
            successor = await in_thread(tls.look, str(tls.settings))
        except CredentialsError as error:
            log.warning("Unable to rotate certificates, the last ones stay in use", err=error)
            return
        # Another task may have replaced the context during the wait; its context is as new.
        if successor is not None and self._tls is tls:
            self._tls = successor
            self.generation += 1
            log.info("Certificates reloaded", files=tls.settings)

    async def _adopt(self, proof: Proof) -> None:
        certificate = (proof.certificate, proof.key)
        while (tls := self._tls) is not None and certificate != self._presented:
            build = functools.partial(tls.with_client_certificate, *certificate)
            changed = await in_thread(build, str(tls.settings))
            if self._tls is tls:  # otherwise files changed meanwhile: use the newer context
                self._tls, self._presented = changed, certificate
                self.generation += 1
        headers = dict(self._impersonation)
        if proof.authorization:
            headers["Authorization"] = proof.authorization
        self._headers = headers
        self._proof = proof


def is_sendable(secret: str) -> bool:
    """Whether a token fits a header line; checked early so that the error can name its source."""
    return secret.isascii() and secret.isprintable()


async def in_thread(call: Callable[[], T], what: str) -> T:
    """Run a blocking file operation with a timeout; `what` names the files in the error."""
    try:
        async with asyncio.timeout(FILE_DEADLINE_S):
            return await asyncio.to_thread(call)
    except TimeoutError:
        raise CredentialsError(f"{what}: could not be read within {FILE_DEADLINE_S:g} s") from None


def impersonation_headers(
    user: str, uid: str, groups: tuple[str, ...], extra: Mapping[str, tuple[str, ...]]
) -> dict[str, str | tuple[str, ...]]:
    """Impersonation headers; empty if `user` is."""
    if not user:
        return {}
    headers: dict[str, str | tuple[str, ...]] = {"Impersonate-User": user}
    if uid:
        headers["Impersonate-Uid"] = uid
    if groups:
        headers["Impersonate-Group"] = groups
    for name, values in extra.items():
        if values:
            headers[f"Impersonate-Extra-{_escape_header_name(name)}"] = values
    return headers


_HEADER_NAME_BYTES = frozenset(
    b"!#$&'*+-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ^_`abcdefghijklmnopqrstuvwxyz|~"
)


def _escape_header_name(name: str) -> str:
    """Percent-encode characters that a header name cannot hold; the server decodes them."""
    return "".join(
        chr(byte) if byte in _HEADER_NAME_BYTES else f"%{byte:02X}" for byte in name.encode()
    )
