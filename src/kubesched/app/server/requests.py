"""A request as the pages see it, and content negotiation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from kubesched.app.server.users import ANONYMOUS, User
from kubesched.base.http_server.messages import Response


async def _anonymous() -> User:
    return ANONYMOUS


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """One request, authenticated and authorized."""

    method: str = "GET"
    path: str
    query: Mapping[str, list[str]] = field(default_factory=dict)
    accept: str | None = None
    accepts_gzip: bool = False
    pretty: bool = False
    """Whether to format the response for people."""
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By lower-case name."""
    query_text: str = ""
    """As sent."""
    sender: Callable[[], Awaitable[User]] = _anonymous
    """The client, for pages whose content depends on permissions."""


def is_for_people(user_agent: str, query: Mapping[str, list[str]]) -> bool:
    """Whether to indent JSON: by the parameter `pretty`, else by the user agent, as upstream."""
    asked = query.get("pretty")
    if asked is not None:
        return asked[0] not in ("", "0", "false")
    return user_agent.startswith(("curl", "Wget", "Mozilla/5.0"))


Page = Callable[[PageRequest], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class MediaType:
    """One entry of an Accept header."""

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)


def accepted_types(header: str | None) -> list[MediaType]:
    """The entries of an Accept header, best first; empty without a header."""
    entries: list[tuple[float, int, MediaType]] = []
    for position, entry in enumerate((header or "").split(",")):
        name, *rest = (part.strip() for part in entry.split(";"))
        if not name:
            continue
        parameters = {
            key.strip().lower(): value.strip()
            for key, equals, value in (part.partition("=") for part in rest)
            if equals
        }
        entries.append(
            (-_quality(parameters.pop("q", "1")), position, MediaType(name.lower(), parameters))
        )
    return [
        media_type
        for _quality_, _position, media_type in sorted(entries, key=lambda entry: entry[:2])
    ]


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
