"""Structural schemas as CEL types: what rules can read, and its maximum size.

Untyped fields (`x-kubernetes-preserve-unknown-fields`) and lists and maps of them are not declared.
Other names than CEL identifiers are escaped. Sizes, at most the request limit, bound rule costs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kubesched.api.cel import types
from kubesched.api.cel.types import Type
from kubesched.playground.apimachinery.objects import Json, JsonObject
from kubesched.playground.apimachinery.schema.structural import EMBEDDED, INT_OR_STRING

MAX_REQUEST_BYTES = 3 * 1024 * 1024
_LONGEST_TEXT = MAX_REQUEST_BYTES - 2
_LONGEST_TIME = 32

KEYWORDS = frozenset(
    (
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for"),
        *("function", "if", "import", "let", "loop", "package", "namespace", "return"),
        *("var", "void", "while"),
    )
)
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ESCAPED = re.compile(r"__|[-./]")
_NAME = re.compile(r"[a-zA-Z_./-][a-zA-Z0-9_./-]*", re.ASCII)
_TEXT: Mapping[str, Json] = {"type": "string"}
_METADATA: Mapping[str, Json] = {
    "type": "object",
    "properties": {"name": _TEXT, "generateName": _TEXT},
}


@dataclass(frozen=True, slots=True)
class Declaration:
    """Type and bounds of a schema: lists and maps have an element, objects have fields."""

    type: Type
    smallest_bytes: int
    """Minimum size of a value as JSON."""
    most_elements: int = 0
    """Maximum length of a list or map; bytes of a string."""
    fields: Mapping[str, Declaration] = field(default_factory=dict)
    """Fields by escaped name."""
    element: Declaration | None = None

    def size_at(self, path: tuple[str, ...]) -> int | None:
        """Maximum size of the value at a cost-estimate path; None if it is not declared.

        Upstream: the first name is the variable, `self` or `oldSelf`; scalars have size 0.
        """
        at: Declaration = self
        for name in path[1:]:
            if name in ("@items", "@values"):
                if at.element is None:
                    return None
                at = at.element
            elif name == "@keys":
                return 0 if at.type.kind is types.TypeKind.MAP else None
            elif name in at.fields:
                at = at.fields[name]
            else:
                return None
        return at.most_elements


def escape(name: str) -> str | None:
    """A property's name as a CEL identifier; None if it cannot be one."""
    if name in KEYWORDS:
        return f"__{name}__"
    if _NAME.fullmatch(name) is None:
        return None
    return _ESCAPED.sub(lambda match: _ESCAPES[match[0]], name)


def declare(schema: JsonObject, name: str, *, is_root: bool = False) -> Declaration | None:
    """The declaration of a schema, or None if rules cannot read its values.

    `name` is the type name of an object; `is_root` adds the identity fields of a whole resource.
    """
    if schema.get(INT_OR_STRING):
        return Declaration(types.DYN, 1, _text_limit(schema))
    if is_root:
        schema = with_identity(schema)
    match schema.get("type"):
        case "array":
            return _list(schema, name)
        case "object":
            if isinstance(schema.get("additionalProperties"), dict):
                return _map(schema, name)
            return _object(schema, name)
        case "string":
            return _text(schema)
        case "boolean":
            return Declaration(types.BOOL, 4)
        case "number":
            return Declaration(types.DOUBLE, 1)
        case "integer":
            return Declaration(types.INT, 1)
    return None


def with_identity(schema: JsonObject) -> JsonObject:
    """The schema with kind, apiVersion and metadata, where rules only see the names."""
    properties = schema.get("properties") or {}
    metadata = properties.get("metadata") or {}
    named = metadata.get("properties") or {}
    texts = (
        properties.get("kind"),
        properties.get("apiVersion"),
        named.get("name"),
        named.get("generateName"),
    )
    if metadata.get("type") == "object" and all(
        (text or {}).get("type") == "string" for text in texts
    ):
        return schema
    identity = {"kind": _TEXT, "apiVersion": _TEXT, "metadata": _METADATA}
    return {**schema, "properties": {**properties, **identity}}


def _list(schema: JsonObject, name: str) -> Declaration | None:
    items = schema.get("items")
    element = _member(items, f"{name}.@idx")
    if element is None:
        return None
    most = _limit(schema, "maxItems", _LONGEST_TEXT // (element.smallest_bytes + 1))
    return Declaration(types.list_of(element.type), 2, most, element=element)


def _map(schema: JsonObject, name: str) -> Declaration | None:
    element = _member(schema["additionalProperties"], f"{name}.@elem")
    if element is None:
        return None
    # Each entry needs at least a key of two bytes, quotes, a colon and a comma.
    most = _limit(schema, "maxProperties", _LONGEST_TEXT // (element.smallest_bytes + 6))
    return Declaration(types.map_of(types.STRING, element.type), 2, most, element=element)


def _object(schema: JsonObject, name: str) -> Declaration:
    required = schema.get("required") or ()
    fields: dict[str, Declaration] = {}
    smallest = 2
    for key, member in (schema.get("properties") or {}).items():
        escaped = escape(key)
        declared = _member(member, f"{name}.{escaped}")
        if declared is None:
            continue
        if escaped is not None:
            fields[escaped] = declared
        if key in required and member.get("default") is None:
            smallest += len(key.encode()) + declared.smallest_bytes + 4
    readable = {key: declared.type for key, declared in fields.items()}
    # Keywords may be used unescaped after a dot.
    readable |= {key: readable[f"__{key}__"] for key in KEYWORDS if f"__{key}__" in readable}
    return Declaration(types.object_type(name, readable), smallest, fields=fields)


def _member(schema: Json, name: str) -> Declaration | None:
    if not isinstance(schema, dict):
        return None
    return declare(schema, name, is_root=bool(schema.get(EMBEDDED)))


def _text(schema: JsonObject) -> Declaration:
    match schema.get("format"):
        case "byte":
            return Declaration(types.BYTES, 2, _limit(schema, "maxLength", _LONGEST_TEXT))
        case "duration":
            return Declaration(types.DURATION, 3, _LONGEST_TIME)
        case "date":
            return Declaration(types.TIMESTAMP, 12, 12)
        case "date-time":
            return Declaration(types.TIMESTAMP, 21, _LONGEST_TIME)
    choices = schema.get("enum")
    if schema.get("maxLength") is None and choices:
        longest = [len(choice.encode()) for choice in choices if isinstance(choice, str)]
        return Declaration(types.STRING, 2, max(longest, default=0))
    return Declaration(types.STRING, 2, _text_limit(schema))


def _text_limit(schema: JsonObject) -> int:
    """Limit in bytes; a character can take four."""
    length = schema.get("maxLength")
    return _LONGEST_TEXT if length is None else max(int(length), 0) * 4


def _limit(schema: JsonObject, field: str, otherwise: int) -> int:
    stated = schema.get(field)
    return otherwise if stated is None else max(int(stated), 0)
