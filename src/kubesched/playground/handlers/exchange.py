"""Transport-independent requests and responses: headers, queries, media types, bodies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args
from urllib.parse import parse_qsl

from kubesched.api.field_errors import not_supported
from kubesched.base.errors import BadRequest, NotAcceptable, UnsupportedMediaType
from kubesched.base.http_server.messages import Response
from kubesched.playground.apimachinery.bodies import (
    FieldValidation,
    check_fields,
    check_kind,
    to_stored,
    unrecognized,
)
from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.failures import invalid_options
from kubesched.playground.apimachinery.objects import Json, JsonObject
from kubesched.playground.apimachinery.serialization import (
    check_size,
    decode_json,
    decode_protobuf_body,
    decode_raw_json,
    decode_yaml,
)
from kubesched.playground.registry.users import ADMINISTRATOR, User

if TYPE_CHECKING:
    from kubesched.playground.handlers.watching import WatchStream

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_JSON_TYPES = (JSON, "*/*", "application/*", "")
_READABLE = "application/json, application/yaml"

View: TypeAlias = Literal["", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"]
_MODES = get_args(FieldValidation)


@dataclass(slots=True)
class ApiRequest:
    """One request. Header names are in lower case; `path` is percent-decoded."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    user: User = ADMINISTRATOR
    omits_managed_fields: bool = False
    """Whether a watch omits managed fields, for clients that do not read them."""

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def is_json(self) -> bool:
        return self.media_type in _JSON_TYPES


@dataclass(slots=True)
class ApiResponse(Response):
    """A response whose body is JSON unless stated otherwise."""

    content_type: str = JSON
    stream: WatchStream | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """The negotiated view of the object (e.g. a table). Every answer is JSON, and so YAML."""

    view: View = ""
    version: str = "v1"
    """Version of the view, in the group meta.k8s.io."""


PLAIN = Accepted()


@lru_cache(maxsize=256)
def negotiate(accept: str) -> Accepted:
    """The first media type in `accept` that the server can produce."""
    if not accept:
        return PLAIN
    for choice in accept.split(","):
        media_type, *parameters = (part.strip() for part in choice.split(";"))
        options = dict(part.split("=", 1) for part in parameters if "=" in part)
        if media_type in _JSON_TYPES:
            media_type = JSON
        if media_type not in (JSON, YAML):
            continue
        view = options.get("as", "")
        if not view:
            return PLAIN
        version = options.get("v", "")
        is_meta = options.get("g") == "meta.k8s.io" and version in ("v1", "v1beta1")
        if is_meta and media_type == JSON and view in get_args(View):
            return Accepted(cast("View", view), version)
    raise NotAcceptable(f"only the following media types are accepted: {_READABLE}")


class Query:
    """The parameters of the query string, parsed by Kubernetes' rules."""

    __slots__ = ("_values",)

    def __init__(self, text: str) -> None:
        self._values: dict[str, str] = {}
        if text:
            for key, value in parse_qsl(text, keep_blank_values=True):
                self._values.setdefault(key, value)

    def get(self, name: str, default: str = "") -> str:
        return self._values.get(name, default)

    def has(self, name: str) -> bool:
        return name in self._values

    def flag(self, name: str) -> bool:
        value = self._values.get(name)
        return value is not None and value.lower() not in ("false", "0")

    def integer(self, name: str) -> int | None:
        value = self._values.get(name)
        if not value:
            return None
        try:
            return int(value)
        except ValueError:
            raise BadRequest(f'strconv.ParseInt: parsing "{value}": invalid syntax') from None


def decode_body(request: ApiRequest, *, keeps_nulls: bool = False) -> Json:
    """Decode a JSON, YAML or protobuf body; `keeps_nulls` keeps null fields."""
    check_size(request.body)
    media_type = request.media_type
    if media_type in _JSON_TYPES:
        return decode_raw_json(request.body) if keeps_nulls else decode_json(request.body)
    if media_type == YAML:
        return decode_yaml(request.body, keeps_nulls=keeps_nulls)
    if media_type == PROTOBUF:
        return decode_protobuf_body(request.body)
    raise UnsupportedMediaType(
        "the body of the request was in an unknown format - accepted media types include:"
        f" {_READABLE}, {PROTOBUF}"
    )


def field_validation(query: Query) -> FieldValidation:
    """How to treat unknown fields; unless rejected, they are kept."""
    mode = query.get("fieldValidation") or "Warn"
    if mode not in _MODES:
        choices = ("", "Ignore", "Strict", "Warn")
        raise invalid_options("CreateOptions", not_supported("fieldValidation", mode, choices))
    return cast("FieldValidation", mode)


def decode_object(
    request: ApiRequest, resource: ResourceInfo, query: Query
) -> tuple[JsonObject, list[str]]:
    """The object in the body, in its stored form, and warnings for the client."""
    try:
        decoded = decode_body(request, keeps_nulls=resource.schema is not None)
    except BadRequest as error:
        raise BadRequest(f"{unrecognized(resource)}: {error.message}") from None
    obj = check_kind(decoded, resource)
    warnings = check_fields(
        resource, obj, request.body, field_validation(query), is_json=request.is_json
    )
    return to_stored(resource, obj), warnings
