"""Every configuration field is read, written back and documented: the checklist in CONTRIBUTING.md.

A field added to `config.types` that does not survive reading and writing, or is forgotten on the
reference page, fails here.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import types as python_types
import typing
from pathlib import Path

import msgspec
import pytest

from kubesched.api.meta import json_name
from kubesched.api.yaml_nodes import parse
from kubesched.config import types
from kubesched.config.defaults import complete
from kubesched.config.output import to_plain
from kubesched.config.plugin_args import ARGS_BY_PLUGIN
from kubesched.config.schema import Decoder, Seconds

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"
HEADER = ("apiVersion", "kind")


def file_name(field):
    return field.metadata.get("name", json_name(field.name))


def leaves(record, path=""):
    """(path, value) of every field below a record: `extenders[].weight` and a value that is not its
    default.
    """
    hints = typing.get_type_hints(record, include_extras=True)
    for field in dataclasses.fields(record):
        name = file_name(field)
        if name not in HEADER:
            yield from _leaves(hints[field.name], f"{path}{name}", field.default)


def _leaves(annotation, path, default):
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation == typing.get_type_hints(types.PluginConfig, include_extras=True)["args"]:
        yield path, {"a": 1}
    elif origin in (typing.Union, python_types.UnionType):
        yield from _leaves(arguments[0], path, default)
    elif origin is tuple:
        yield from _leaves(arguments[0], f"{path}[]", None)
    elif annotation == Seconds:
        yield path, "7s"
    elif origin is typing.Annotated:
        yield from _leaves(arguments[0], path, default)
    elif dataclasses.is_dataclass(annotation):
        yield from leaves(annotation, f"{path}.")
    elif annotation is bool:
        yield path, not default
    else:
        sample = {str: "x", int: 7, float: 7.5, bytes: base64.b64encode(b"x").decode()}
        yield path, sample[annotation]


def document(path, value):
    """A file in which this field alone is written."""
    name, dot, rest = path.partition(".")
    inner = document(rest, value) if dot else value
    return {name.removesuffix("[]"): [inner] if name.endswith("[]") else inner}


def at(plain, path):
    for name in path.split("."):
        plain = plain[name.removesuffix("[]")]
        plain = plain[0] if name.endswith("[]") else plain
    return plain


FIELDS = list(leaves(types.KubeSchedulerConfiguration))


@pytest.mark.parametrize(("path", "value"), FIELDS)
def test_a_field_survives_reading_and_writing(path, value):
    decoder = Decoder(json=True)
    root = parse(json.dumps(document(path, value)).encode(), "")
    file = decoder.read(root, types.KubeSchedulerConfiguration, "")
    assert decoder.problems == []
    config = complete(file, decoder.given, lambda _path, _plugin, raw: raw)
    assert at(to_plain(config), path) == value


def test_every_field_is_documented():
    points = [file_name(field) for field in dataclasses.fields(types.Plugins)]
    assert documented_fields(points) == {path for path, _ in FIELDS}


def documented_fields(points):
    documented = set()
    prefix = ""
    for line in PAGE.read_text().partition("## Arguments")[0].splitlines():
        if line.startswith("## "):
            prefix = f"{line[3:].lower()}[]."
        elif line.startswith("| `"):
            for field in re.findall(r"`(.+?)`", line.split(" | ")[0]):
                expanded = points if "<point>" in field else [""]
                documented |= {prefix + field.replace("<point>", point) for point in expanded}
    return documented


def test_every_argument_of_a_plugin_is_documented():
    rows = re.findall(r"^\| (\w+) \| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert rows == [
        (plugin, field.encode_name)
        for plugin, record in ARGS_BY_PLUGIN.items()
        for field in msgspec.structs.fields(record)
    ]
