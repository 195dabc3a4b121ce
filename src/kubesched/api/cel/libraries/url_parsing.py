"""Text to URL, as leniently and with the messages of Go's `net/url` package."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from urllib.parse import quote as percent_encode
from urllib.parse import unquote

from kubesched.api.cel.libraries.ip_parsing import AddressError, parse_address
from kubesched.base.logs import quoted as quote

_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~")
# Characters that each component may contain unescaped, besides the unreserved ones.
_PATH = "$&+,/:;=@"
_HOST = "!$&'()*+,;=:[]<>\""
_USER = "$&+,;="
_FRAGMENT = "$&+,/:;=?@!()*"
_VALID_IN_PATH = _UNRESERVED.union(_PATH, "!'()*[]%")
_VALID_IN_HOST = _UNRESERVED.union(_HOST)
_USERINFO = _UNRESERVED | frozenset(":!$&'()*+,;=%@")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:", re.ASCII)
_PORT = re.compile(r"(?::[0-9]*)?", re.ASCII)
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}", re.ASCII)


class UrlError(ValueError):
    """The text is not a URL; the message is Go's."""


@dataclass(frozen=True, slots=True)
class ParsedUrl:
    """The parts of a URL, unescaped except for `raw` ones."""

    scheme: str = ""
    opaque: str = ""
    user: str | None = None
    password: str | None = None
    host: str = ""
    path: str = ""
    raw_path: str = ""
    """The path as written."""
    raw_query: str = ""
    force_query: bool = False
    fragment: str = ""

    def host_and_port(self) -> tuple[str, str]:
        host, colon, port = self.host.rpartition(":")
        if not colon or not _PORT.fullmatch(colon + port):
            host, port = self.host, ""
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        return host, port

    def escaped_path(self) -> str:
        if self.raw_path and _VALID_IN_PATH.issuperset(self.raw_path):
            return self.raw_path
        return "*" if self.path == "*" else _escape(self.path, _PATH)

    def query_values(self) -> dict[str, list[str]]:
        """The values of each parameter, without malformed ones."""
        values: dict[str, list[str]] = {}
        for parameter in self.raw_query.split("&"):
            if not parameter or ";" in parameter:
                continue
            key, _, value = parameter.partition("=")
            try:
                name = _unescape(key.replace("+", " "))
                content = _unescape(value.replace("+", " "))
            except UrlError:
                continue
            values.setdefault(name, []).append(content)
        return values

    def text(self) -> str:
        """The reassembled URL, by which two URLs are compared."""
        built = f"{self.scheme}:" if self.scheme else ""
        if self.opaque:
            built += self.opaque
        else:
            has_authority = bool(self.host) or self.user is not None
            path = self.escaped_path()
            if has_authority:
                built += "//" + self._userinfo() + _escape(self.host, _HOST)
            if path and not path.startswith("/") and self.host:
                built += "/"
            built += path
        if self.force_query or self.raw_query:
            built += f"?{self.raw_query}"
        return f"{built}#{_escape(self.fragment, _FRAGMENT)}" if self.fragment else built

    def _userinfo(self) -> str:
        if self.user is None:
            return ""
        password = "" if self.password is None else f":{_escape(self.password, _USER)}"
        return f"{_escape(self.user, _USER)}{password}@"


def parse_request_uri(text: str) -> ParsedUrl:
    """An absolute URI or an absolute path, without a fragment."""
    try:
        return _parse(text, via_request=True)
    except UrlError as error:
        raise UrlError(f"parse {quote(text)}: {error}") from error


def parse(text: str) -> ParsedUrl:
    """Any URL reference."""
    before, _, fragment = text.partition("#")
    try:
        parsed = _parse(before, via_request=False)
    except UrlError as error:
        raise UrlError(f"parse {quote(before)}: {error}") from error
    try:
        unescaped = _unescape(fragment)
    except UrlError as error:
        raise UrlError(f"parse {quote(text)}: {error}") from error
    return replace(parsed, fragment=unescaped)


def _parse(text: str, *, via_request: bool) -> ParsedUrl:
    if any(character < " " or character == "\x7f" for character in text):
        raise UrlError("net/url: invalid control character in URL")
    if not text and via_request:
        raise UrlError("empty url")
    if text == "*":
        return ParsedUrl(path="*")
    scheme, rest = _scheme(text)
    force_query = rest.endswith("?") and rest.count("?") == 1
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return ParsedUrl(scheme, rest, raw_query=query, force_query=force_query)
        if via_request:
            raise UrlError("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise UrlError("first path segment in URL cannot contain colon")
    user: str | None = None
    password: str | None = None
    host = ""
    has_authority = scheme or (not via_request and not rest.startswith("///"))
    if has_authority and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        user, password, host = _authority(scheme, authority)
    return ParsedUrl(scheme, "", user, password, host, _unescape(rest), rest, query, force_query)


def _scheme(text: str) -> tuple[str, str]:
    if text.startswith(":"):
        raise UrlError("missing protocol scheme")
    match = _SCHEME.match(text)
    if match is None:
        return "", text
    return match.group()[:-1].lower(), text[match.end() :]


def _authority(scheme: str, authority: str) -> tuple[str | None, str | None, str]:
    userinfo, at, host = authority.rpartition("@")
    host = _host(scheme, host)
    if not at:
        return None, None, host
    if not _USERINFO.issuperset(userinfo):
        raise UrlError("net/url: invalid userinfo")
    user, colon, password = userinfo.partition(":")
    return _unescape(user), _unescape(password) if colon else None, host


def _host(scheme: str, host: str) -> str:
    bracket = host.rfind("[")
    if bracket > 0:
        raise UrlError("invalid IP-literal")
    if bracket == 0:
        return _bracketed_host(host)
    colon = host.find(":")
    if colon >= 0:
        if scheme not in ("http", "https"):
            colon = host.rfind(":")
        if not _PORT.fullmatch(host[colon:]):
            raise UrlError(f"invalid port {quote(host[colon:])} after host")
    return _unescape_host(host)


def _bracketed_host(host: str) -> str:
    end = host.rfind("]")
    if end < 0:
        raise UrlError("missing ']' in host")
    port = host[end + 1 :]
    if not _PORT.fullmatch(port):
        raise UrlError(f"invalid port {quote(port)} after host")
    address, percent, zone = host[1:end].partition("%25")
    unescaped = _unescape_host(address) + (_unescape(percent + zone) if percent else "")
    try:
        parsed, _zone = parse_address(unescaped)
    except AddressError as error:
        raise UrlError(f"invalid host: {error}") from error
    if parsed.version == 4:
        raise UrlError("invalid IP-literal")
    return f"[{unescaped}]{port}"


def _unescape_host(host: str) -> str:
    at = 0
    while at < len(host):
        character = host[at]
        if character == "%":
            escape = host[at : at + 3]
            if not _ESCAPE.fullmatch(escape) or (escape[1] in "01234567" and escape != "%25"):
                raise UrlError(f"invalid URL escape {quote(escape)}")
            at += 3
            continue
        if character < "\x80" and character not in _VALID_IN_HOST:
            raise UrlError(f"invalid character {quote(character)} in host name")
        at += 1
    return _unescape(host)


def _unescape(text: str) -> str:
    at = text.find("%")
    while at >= 0:
        escape = text[at : at + 3]
        if not _ESCAPE.fullmatch(escape):
            raise UrlError(f"invalid URL escape {quote(escape)}")
        at = text.find("%", at + 3)
    return unquote(text, errors="replace")


def _escape(text: str, safe: str) -> str:
    return percent_encode(text, safe, errors="replace")
