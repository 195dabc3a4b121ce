"""Every configuration field is read, written back and documented: the checklist in CONTRIBUTING.md.

A field added to `config.v1` and forgotten in `config.types`, in `config.conversion` or on the reference page fails here.
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

from kubesched.config import types, v1
from kubesched.config.conversion import from_v1, to_plain
from kubesched.config.plugin_args import ARGS_BY_PLUGIN
from kubesched.config.schema import Decoder, RawArgs, Seconds
from kubesched.config.yaml_nodes import parse

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"
HEADER = ("apiVersion", "kind")
RECORDS = [
    record
    for record in vars(v1).values()
    if isinstance(record, type)
    and issubclass(record, msgspec.Struct)
    and record.__module__ == v1.__name__
]


def leaves(record, path=""):
    """(path, value) of every field below a record: `extenders[].weight` and a value that is not its default."""
    hints = typing.get_type_hints(record, include_extras=True)
    for field in msgspec.structs.fields(record):
        if field.encode_name not in HEADER:
            internal = getattr(types, record.__name__)
            default = next(f.default for f in dataclasses.fields(internal) if f.name == field.name)
            yield from _leaves(hints[field.name], f"{path}{field.encode_name}", default)


def _leaves(annotation, path, default):
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, python_types.UnionType):
        yield from _leaves(arguments[0], path, default)
    elif origin is tuple:
        yield from _leaves(arguments[0], f"{path}[]", None)
    elif annotation == Seconds:
        yield path, "7s"
    elif origin is typing.Annotated:
        yield from _leaves(arguments[0], path, default)
    elif issubclass(annotation, msgspec.Struct):
        yield from leaves(annotation, f"{path}.")
    elif annotation is bool:
        yield path, not default
    else:
        sample = {str: "x", int: 7, float: 7.5, bytes: base64.b64encode(b"x").decode()}
        yield path, {"a": 1} if annotation is RawArgs else sample[annotation]


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


FIELDS = list(leaves(v1.KubeSchedulerConfiguration))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_both_forms_of_a_record_have_the_same_fields(record):
    wire = [field.name for field in msgspec.structs.fields(record)]
    internal = [field.name for field in dataclasses.fields(getattr(types, record.__name__))]
    assert [name for name in wire if name not in ("api_version", "kind")] == internal


@pytest.mark.parametrize(("path", "value"), FIELDS)
def test_a_field_survives_reading_and_writing(path, value):
    decoder = Decoder(json=True)
    root = parse(json.dumps(document(path, value)).encode(), "")
    file = decoder.read(root, v1.KubeSchedulerConfiguration, "")
    assert decoder.problems == []
    config = from_v1(file, lambda _path, _plugin, raw: raw)
    assert at(to_plain(config), path) == value


def test_every_field_is_documented():
    points = [field.encode_name for field in msgspec.structs.fields(v1.Plugins)]
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
