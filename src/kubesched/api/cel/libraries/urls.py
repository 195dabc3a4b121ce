"""URLs: `url('https://example.com:80/x').getPort()`."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from kubesched.api.cel import costs, types
from kubesched.api.cel.environment import Library, declare
from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.libraries import url_parsing
from kubesched.api.cel.libraries.conversions import succeeds
from kubesched.api.cel.libraries.url_parsing import ParsedUrl, UrlError
from kubesched.api.cel.types import Type
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


def _part(of: Callable[[ParsedUrl], Value]) -> Callable[[Url], Value]:
    return lambda url: of(url.parsed)


URLS = Library(
    "kubernetes.urls",
    (
        declare("url(string) -> url", Url.parse),
        declare("isURL(string) -> bool", succeeds(url_parsing.parse_request_uri, UrlError)),
        declare(".getScheme(url) -> string", _part(lambda url: url.scheme)),
        declare(".getHost(url) -> string", _part(lambda url: url.host)),
        declare(".getHostname(url) -> string", _part(lambda url: url.host_and_port()[0])),
        declare(".getPort(url) -> string", _part(lambda url: url.host_and_port()[1])),
        declare(".getEscapedPath(url) -> string", _part(ParsedUrl.escaped_path)),
        declare(".getQuery(url) -> map(string, list(string))", _part(ParsedUrl.query_values)),
    ),
    costs={"url": costs.of_first_argument},
)
