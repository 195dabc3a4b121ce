"""YAML as Kubernetes' clients write it: safe, JSON-shaped, without duplicate keys."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import yaml

from kubesched.api.yaml_loading import BoundedLoader

Json: TypeAlias = Any
"""Any JSON value."""


class _Loader(BoundedLoader):
    """A safe loader whose values all exist in JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, regexp)
        for tag, regexp in resolvers
        if not tag.endswith((":timestamp", ":int", ":float"))
    ]
    for first, resolvers in BoundedLoader.yaml_implicit_resolvers.items()
}
# Go's decoder reads 1e3 as a number and 12:30 as text; PyYAML does the reverse.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|[1-9][0-9_]*|0)$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"(?:[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)|[-+]?(?:[0-9][0-9_]*)?\.[0-9]+|[-+]?[0-9]+\.)$"
    ),
    list("-+0123456789."),
)


def _construct_mapping(loader: Json, node: yaml.MappingNode) -> dict[str, Any]:
    loader.flatten_mapping(node)
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if isinstance(key, bool):
            key = "true" if key else "false"
        key = str(key)
        if key in result:
            raise yaml.constructor.ConstructorError(
                None, None, f'key "{key}" already set in map', key_node.start_mark
            )
        result[key] = loader.construct_object(value_node, deep=True)
    return result


def _construct_int(loader: Json, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node).replace("_", "")
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    if digits.startswith(("0b", "0x", "0o")):
        return sign * int(digits, 0)
    if len(digits) > 1 and digits.startswith("0"):
        return sign * int(digits, 8)
    return sign * int(digits)


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)


def load(text: bytes) -> Json:
    """Loads the first document of the text; rejects values that JSON cannot represent."""
    return yaml.load(text, Loader=_Loader)


def compose(text: bytes) -> yaml.Node | None:
    """The nodes of the first document, with their lines."""
    node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    return node
