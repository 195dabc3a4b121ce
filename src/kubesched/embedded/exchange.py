"""Requests and responses independent of the transport: headers, queries, media types, bodies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from kubesched.embedded.auth.users import ADMINISTRATOR, User
from kubesched.embedded.objects import Json, JsonObject, decode, encode
from kubesched.errors import BadRequest, NotAcceptable, RequestEntityTooLarge, UnsupportedMediaType
from kubesched.http_server.messages import ByteStream, Response

MAX_BODY_BYTES = 3 * 1024 * 1024  # upstream's limit for a request body

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_JSON_TYPES = (JSON, "*/*", "application/*", "")
_READABLE = "application/json, application/yaml"

View: TypeAlias = Literal["", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"]


@dataclass(slots=True)
class ApiRequest:
    """One request. Names of headers are in lower case; `path` is percent-decoded."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    user: User = ADMINISTRATOR
    omits_managed_fields: bool = False
    """Whether a watch leaves out who manages which fields, for clients that do not read it."""

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def is_json(self) -> bool:
        return self.media_type in _JSON_TYPES


class ChunkStream(ByteStream, Protocol):
    """A response body that is produced while it is read, such as a watch."""

    def close(self) -> None:
        """Stop producing; what `aclose` does, for callers that cannot await."""
        ...


@dataclass(slots=True)
class ApiResponse(Response):
    """A response whose body is JSON unless stated otherwise."""

    content_type: str = JSON
    stream: ChunkStream | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """What the client wants to read: a serialisation and, of the same object, a view."""

    media_type: str = JSON
    view: View = ""


PLAIN = Accepted()


@lru_cache(maxsize=256)
def negotiate(accept: str) -> Accepted:
    """The first of the client's choices that we can produce."""
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
            return Accepted(media_type)
        if options.get("g") == "meta.k8s.io" and options.get("v") == "v1" and media_type == JSON:
            if view == "Table":
                return Accepted(JSON, "Table")
            if view == "PartialObjectMetadata":
                return Accepted(JSON, "PartialObjectMetadata")
            if view == "PartialObjectMetadataList":
                return Accepted(JSON, "PartialObjectMetadataList")
    raise NotAcceptable(
        f"only the following media types are accepted: {_READABLE}",
    )


class Query:
    """The query string's parameters, with the readings Kubernetes gives them."""

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


def check_size(body: bytes) -> None:
    """Refuse what is larger than a request may be: a body, or an object that patches made grow."""
    if len(body) > MAX_BODY_BYTES:
        raise RequestEntityTooLarge(f"Request entity too large: limit is {MAX_BODY_BYTES}")


def decode_body(request: ApiRequest, *, keeps_nulls: bool = False) -> Json:
    """The request's body as a JSON value, from JSON or YAML; nulls are kept for kinds where they are values."""
    check_size(request.body)
    media_type = request.media_type
    if media_type in _JSON_TYPES:
        return decode_raw_json(request.body) if keeps_nulls else decode_json(request.body)
    if media_type == YAML:
        return decode_yaml(request.body, keeps_nulls=keeps_nulls)
    if media_type == PROTOBUF:
        return _decode_protobuf(request.body)
    raise UnsupportedMediaType(
        "the body of the request was in an unknown format - accepted media types include:"
        f" {_READABLE}, {PROTOBUF}"
    )


def decode_json(body: bytes) -> Json:
    value = decode_raw_json(body)
    return strip_nulls(value) if b"null" in body else value


def decode_raw_json(body: bytes) -> Json:
    """JSON with its nulls, which in a patch mean removal."""
    check_size(body)
    if not body:
        raise BadRequest(
            "couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)"
        )
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"couldn't get version/kind; json parse error: {error}") from None


def decode_yaml(body: bytes, *, keeps_nulls: bool = False) -> Json:
    import yaml

    from kubesched.api.kubernetes_yaml import load

    try:
        value = load(body)
        return value if keeps_nulls else strip_nulls(value)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadRequest(f"yaml: {error}") from None


def _decode_protobuf(body: bytes) -> JsonObject:
    from kubesched.embedded.resources.schema.protobuf import ProtobufError, decode_protobuf

    try:
        return decode_protobuf(body)
    except (ProtobufError, msgspec.DecodeError, OverflowError) as error:
        raise BadRequest(f"unable to decode the protobuf body: {error}") from None


def strip_nulls(value: Json) -> Json:
    """The value without null fields: to a typed server, null and absent are the same."""
    if isinstance(value, dict):
        return {key: strip_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [strip_nulls(item) for item in value]
    return value


def json_response(value: JsonObject, status: int = 200) -> ApiResponse:
    return ApiResponse(status, encode(value))
