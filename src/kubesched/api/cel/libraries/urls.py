"""URLs: `url('https://example.com:80/x').getPort()`."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from kubesched.api.cel import costs, types
from kubesched.api.cel.environment import Library, Overload, member
from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.libraries import url_parsing
from kubesched.api.cel.libraries.conversions import succeeds
from kubesched.api.cel.libraries.url_parsing import ParsedUrl, UrlError
from kubesched.api.cel.types import BOOL, STRING, Type, list_of, map_of
from kubesched.api.cel.values import Value


class Url:
    """An absolute URL or an absolute path. Immutable."""

    __slots__ = ("parsed",)
    cel_type: ClassVar[Type] = types.URL

    def __init__(self, parsed: ParsedUrl) -> None:
        self.parsed = parsed

    @classmethod
    def parse(cls, text: str) -> Url:
        try:
            url_parsing.parse_request_uri(text)
            return cls(url_parsing.parse(text))
        except UrlError as error:
            raise EvaluationError(
                f"URL parse error during conversion from string: {error}"
            ) from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Url) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return self.parsed.text()


def _accessor(id: str, call: Callable[[ParsedUrl], Value], result: Type = STRING) -> Overload:
    return member(id, (types.URL,), result, lambda url: call(url.parsed))


URLS = Library(
    "kubernetes.urls",
    {
        "url": Overload("string_to_url", (STRING,), types.URL, Url.parse),
        "isURL": Overload(
            "is_url_string", (STRING,), BOOL, succeeds(url_parsing.parse_request_uri, UrlError)
        ),
        "getScheme": _accessor("url_get_scheme", lambda url: url.scheme),
        "getHost": _accessor("url_get_host", lambda url: url.host),
        "getHostname": _accessor("url_get_hostname", lambda url: url.host_and_port()[0]),
        "getPort": _accessor("url_get_port", lambda url: url.host_and_port()[1]),
        "getEscapedPath": _accessor("url_get_escaped_path", ParsedUrl.escaped_path),
        "getQuery": _accessor(
            "url_get_query", ParsedUrl.query_values, map_of(STRING, list_of(STRING))
        ),
    },
    costs={"url": costs.of_first_argument},
)
