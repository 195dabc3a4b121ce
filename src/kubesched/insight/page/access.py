"""Access control: a one-time token in the link, then a cookie; and restrictions for the browser.

- A link's token works once. Opening the link sets a cookie (HttpOnly, SameSite=Strict), and the
  next link is printed. The cookie is signed with a stored key that only the user can read, so it
  survives a restart of the server.
- The Host header must be an IP address or localhost, which prevents DNS rebinding.
- Requests that change something must come from the page: the Origin header must be the server's.
- The content security policy allows scripts and styles of this server only.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

from kubesched.base.clock import Clock
from kubesched.base.http_server.messages import Response

SESSION_S: Final = 7 * 24 * 3600
CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


_HOST: Final = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<four>[0-9.]+)|(?P<name>[A-Za-z]+))(?::[0-9]{1,5})?"
)
"""A complete Host header: an address or a name, and an optional port."""


def with_headers(response: Response) -> Response:
    """Add the headers common to all responses of the page."""
    given = response.headers or {}
    response.headers = {"Cache-Control": "no-store", **HEADERS, **given}
    return response


def load_or_make_key(path: Path) -> bytes:
    """The key that signs cookies, in a file that only the user can read.

    Raises:
        OSError: the file can be neither read nor created.
    """
    try:
        key = path.read_bytes()
        if len(key) >= 32:
            return key
    except FileNotFoundError:
        pass
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = secrets.token_bytes(32)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with open(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(key)
    partial.replace(path)
    return key


class Access:
    """Tokens and cookies of one server."""

    def __init__(self, key: bytes, port: int, clock: Clock) -> None:
        self._key = key
        self._port = port
        self._clock = clock
        self.token = secrets.token_urlsafe(32)
        self.on_used: Callable[[], None] = lambda: None
        """Called after a token was used; `token` is the next one by then."""

    @property
    def _cookie_name(self) -> str:
        return f"kubesched-page-{self._port}"  # cookies are shared between ports

    def redeem(self, token: str) -> str | None:
        """The Set-Cookie header for a token, or None if the token is not or no longer valid."""
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            return None
        self.token = secrets.token_urlsafe(32)
        self.on_used()
        expires = int(self._clock.now()) + SESSION_S
        nonce = secrets.token_urlsafe(16)
        value = f"{expires}.{nonce}.{self._mac(expires, nonce)}"
        return (
            f"{self._cookie_name}={value}; Path=/; Max-Age={SESSION_S}; HttpOnly; SameSite=Strict"
        )

    def is_known(self, headers: Mapping[str, str]) -> bool:
        """Whether the request carries a valid cookie that has not expired."""
        for part in headers.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == self._cookie_name and self._is_valid(value):
                return True
        return False

    def _is_valid(self, value: str) -> bool:
        expires, _, rest = value.partition(".")
        nonce, _, mac = rest.partition(".")
        if not (expires.isascii() and expires.isdecimal() and len(expires) < 15):
            return False
        expected = self._mac(int(expires), nonce)
        return (
            hmac.compare_digest(mac.encode(), expected.encode())
            and int(expires) > self._clock.now()
        )

    def _mac(self, expires: int, nonce: str) -> str:
        text = f"kubesched page {self._port} {expires} {nonce}"
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


def is_allowed_host(host: str) -> bool:
    """Whether a Host header names this machine in a form that DNS cannot spoof."""
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    if match["name"] is not None:
        return match["name"].lower() == "localhost"
    try:
        ipaddress.ip_address(match["six"] or match["four"])
    except ValueError:
        return False
    return True


def is_same_origin(headers: Mapping[str, str], scheme: str) -> bool:
    """Whether this server's page sent the request; browsers omit Origin only on plain reads."""
    return headers.get("origin") == f"{scheme}://{headers.get('host', '')}"


def token_of(query: str) -> str | None:
    values = parse_qs(query, max_num_fields=16).get("token")
    return values[0] if values else None
