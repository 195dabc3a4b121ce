"""Reaching the API server through a proxy: choosing one, and the handshake with it.

Parses a proxy's URL, chooses one from the environment like Go's `net/http` (and so kubectl and
kube-scheduler), and opens a tunnel: HTTP CONNECT or SOCKS5 (RFC 1928, password per RFC 1929). The
pool starts TLS to the API server inside the tunnel. Passwords never appear in errors.
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

_DEFAULT_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
_SOCKS_ERRORS = {
    1: "general failure",
    2: "not allowed by its rules",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "time to live expired",
    7: "command not supported",
    8: "address type not supported",
}


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy.

    `scheme` is http, https, socks5 or socks5h (Go treats the two alike: names go to the proxy).
    """

    scheme: str
    host: str
    port: int
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"{self.scheme} proxy {self.host}:{self.port}"

    @property
    def is_socks(self) -> bool:
        return self.scheme.startswith("socks5")

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
        raise problem(
            f'scheme "{scheme}" is not supported, expected one of {", ".join(_DEFAULT_PORTS)}'
        )
    if not parts.hostname:
        raise problem("names no host")
    username, password = unquote(parts.username or ""), unquote(parts.password or "")
    if scheme.startswith("socks5") and max(len(username.encode()), len(password.encode())) > 255:
        raise problem("user name and password for SOCKS5 are limited to 255 bytes each")
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
        if self._proxy.is_socks:
            await self._open_socks(host, port)
        else:
            await self._open_connect(host, port)
        if self._received:
            raise ConnectFailed(f"{self._proxy} sent bytes after its handshake")

    # HTTP CONNECT.

    async def _open_connect(self, host: str, port: int) -> None:
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
        if authorization := self._proxy.authorization():
            lines.append(f"Proxy-Authorization: {authorization}")
        self._write("\r\n".join([*lines, "", ""]).encode("ascii"))
        head = await self._read_head()
        version, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        status = rest[:3]
        if not version.startswith(b"HTTP/1.") or not status.isdigit():
            raise ConnectFailed(f"{self._proxy} did not answer CONNECT with HTTP")
        if not status.startswith(b"2"):
            raise ConnectFailed(
                f"{self._proxy} refused a tunnel to {authority} with status {int(status)}"
            )

    async def _read_head(self) -> bytes:
        while (end := self._received.find(b"\r\n\r\n")) < 0:
            if len(self._received) > MAX_CONNECT_REPLY_BYTES:
                raise ConnectFailed(f"{self._proxy} answered CONNECT with too many headers")
            await self._more()
        return self._take(end + 4)

    # SOCKS5.

    async def _open_socks(self, host: str, port: int) -> None:
        has_login = bool(self._proxy.username or self._proxy.password)
        self._write(b"\x05\x02\x00\x02" if has_login else b"\x05\x01\x00")
        version, method = await self._read_exactly(2)
        if version != 5:
            raise ConnectFailed(f"{self._proxy} does not speak SOCKS5")
        if method == 2 and has_login:
            await self._socks_login()
        elif method != 0:
            raise ConnectFailed(f"{self._proxy} accepts none of our authentication methods")
        self._write(b"\x05\x01\x00" + _socks_address(host) + port.to_bytes(2, "big"))
        version, reply, _, kind = await self._read_exactly(4)
        if version != 5 or reply != 0:
            why = _SOCKS_ERRORS.get(reply, f"code {reply}")
            raise ConnectFailed(f"{self._proxy} could not reach {host}:{port}: {why}")
        # The proxy's bound address is not used but must be read.
        if kind == 3:
            (length,) = await self._read_exactly(1)
        else:
            length = {1: 4, 4: 16}.get(kind, 0)
            if not length:
                raise ConnectFailed(f"{self._proxy} answered with unknown address type {kind}")
        await self._read_exactly(length + 2)

    async def _socks_login(self) -> None:
        user, password = self._proxy.username.encode(), self._proxy.password.encode()
        self._write(bytes([1, len(user)]) + user + bytes([len(password)]) + password)
        _, status = await self._read_exactly(2)
        if status != 0:
            raise ConnectFailed(f"{self._proxy} did not accept our user name and password")

    # Bytes.

    def _write(self, data: bytes) -> None:
        assert self.transport is not None, "not connected to the proxy"
        self.transport.write(data)

    async def _read_exactly(self, count: int) -> bytes:
        while len(self._received) < count:
            await self._more()
        return self._take(count)

    def _take(self, count: int) -> bytes:
        data = bytes(self._received[:count])
        del self._received[:count]
        return data

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


def _socks_address(host: str) -> bytes:
    address = _parse_address(host)
    if address is None:
        # Upstream: Go sends names for socks5 and socks5h alike; the proxy resolves them.
        name = host.encode("idna")
        return bytes([3, len(name)]) + name
    return (b"\x01" if address.version == 4 else b"\x04") + address.packed
