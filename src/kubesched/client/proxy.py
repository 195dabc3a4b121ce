"""Reaching the API server through a proxy: choosing one, and the handshake with it.

Parses a proxy's URL, chooses one from the environment like Go's `net/http` (and so kubectl and
kube-scheduler), and opens a tunnel by HTTP CONNECT. The pool starts TLS to the API server in the
tunnel. Passwords never appear in errors. SOCKS5 is not supported.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import unquote, urlsplit

from kubesched.base.errors import ConfigError, ConnectFailed, FieldProblem

MAX_CONNECT_REPLY_BYTES = 16 * 1024

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy; `scheme` is http or https."""

    scheme: str
    host: str
    port: int
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"{self.scheme} proxy {self.host}:{self.port}"

    def authorization(self) -> str:
        """The value of `Proxy-Authorization`, or "" if the proxy needs none."""
        if not self.username and not self.password:
            return ""
        pair = f"{self.username}:{self.password}".encode()
        return "Basic " + base64.b64encode(pair).decode("ascii")


def parse_proxy_url(url: str, field_path: str = "proxy-url") -> Proxy:
    """The proxy of a URL.

    Raises `ConfigError` at `field_path`, without the URL since it may contain a password.
    """

    def problem(message: str) -> ConfigError:
        return ConfigError([FieldProblem(field_path, message)])

    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError:
        raise problem("is not a valid URL") from None  # the cause may quote a password
    scheme = parts.scheme.lower()
    if scheme not in _DEFAULT_PORTS:
        raise problem(f'scheme "{scheme}" is not supported, expected http or https')
    if not parts.hostname:
        raise problem("names no host")
    username, password = unquote(parts.username or ""), unquote(parts.password or "")
    return Proxy(scheme, parts.hostname, port or _DEFAULT_PORTS[scheme], username, password)


def proxy_from_environment(
    scheme: str, host: str, port: int, environ: Mapping[str, str]
) -> Proxy | None:
    """The proxy in `HTTPS_PROXY` or `HTTP_PROXY` for this server, unless `NO_PROXY` exempts it."""
    name = "HTTPS_PROXY" if scheme == "https" else "HTTP_PROXY"
    url = environ.get(name) or environ.get(name.lower()) or ""
    if not url or _is_exempt(host, port, environ.get("NO_PROXY") or environ.get("no_proxy") or ""):
        return None
    return parse_proxy_url(url, f"environment variable {name}")


def _is_exempt(host: str, port: int, no_proxy: str) -> bool:
    """Go's rules (`golang.org/x/net/http/httpproxy`): loopback is always exempt.

    Entries are names, networks or addresses.
    """
    host = host.lower().rstrip(".")
    address = _parse_address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(
        _matches_exemption(entry.strip().lower(), host, port, address)
        for entry in no_proxy.split(",")
        if entry.strip()
    )


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _matches_exemption(entry: str, host: str, port: int, address: _Address | None) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, entry_port = _split_port(entry)
    if entry_port is not None and entry_port != port:
        return False
    entry_address = _parse_address(name)
    if entry_address is not None:
        return address == entry_address
    # "example.com" matches the name and its subdomains, ".example.com" and "*.example.com" only the
    # subdomains.
    name = name.removeprefix("*")
    if name.startswith("."):
        return host.endswith(name)
    return host == name or host.endswith(f".{name}")


def _split_port(entry: str) -> tuple[str, int | None]:
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        return name, int(rest[1:]) if rest[1:].isdigit() else None
    if _parse_address(entry) is not None:
        return entry, None  # a bare IPv6 address contains colons
    name, _, port = entry.rpartition(":")
    return (name, int(port)) if name and port.isdigit() else (entry, None)


def _parse_address(host: str) -> _Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


class TunnelProtocol(asyncio.Protocol):
    """Talks to the proxy until the tunnel is open; then the transport gets the real protocol."""

    def __init__(self, proxy: Proxy) -> None:
        self.transport: asyncio.Transport | None = None
        self._proxy = proxy
        self._received = bytearray()
        self._arrival = asyncio.Event()
        self._is_lost = False

    async def open(self, host: str, port: int) -> None:
        """Open a tunnel to the API server; the caller sets the timeout. Raises `ConnectFailed`."""
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
        if authorization := self._proxy.authorization():
            lines.append(f"Proxy-Authorization: {authorization}")
        assert self.transport is not None, "not connected to the proxy"
        self.transport.write("\r\n".join([*lines, "", ""]).encode("ascii"))
        head = await self._read_head()
        version, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        status = rest[:3]
        if not version.startswith(b"HTTP/1.") or not status.isdigit():
            raise ConnectFailed(f"{self._proxy} did not answer CONNECT with HTTP")
        if not status.startswith(b"2"):
            raise ConnectFailed(
                f"{self._proxy} refused a tunnel to {authority} with status {int(status)}"
            )
        if self._received:
            raise ConnectFailed(f"{self._proxy} sent bytes after its handshake")

    async def _read_head(self) -> bytes:
        while (end := self._received.find(b"\r\n\r\n")) < 0:
            if len(self._received) > MAX_CONNECT_REPLY_BYTES:
                raise ConnectFailed(f"{self._proxy} answered CONNECT with too many headers")
            await self._more()
        head = bytes(self._received[: end + 4])
        del self._received[: end + 4]
        return head

    async def _more(self) -> None:
        if self._is_lost:
            raise ConnectFailed(f"{self._proxy} closed the connection during its handshake")
        self._arrival.clear()
        await self._arrival.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._arrival.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._arrival.set()
