"""Manifest files as for `kubectl apply -f`: YAML or JSON, several documents, Lists."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kubesched.api.yaml_nodes import YamlError, load
from kubesched.base.files import MAX_BYTES, read_file
from kubesched.insight.state.planned_cluster import PlanError
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.apimachinery.schema.decoding import unknown_fields

STDIN = "-"
_MARKER = re.compile(rb"^---(?=\s|$).*\n?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a file."""

    file: str
    line: int
    """Line where its document begins."""
    obj: JsonObject

    @property
    def kind(self) -> str:
        return str(self.obj["kind"])

    @property
    def name(self) -> str:
        return str((self.obj.get("metadata") or {}).get("name") or "")

    @property
    def namespace(self) -> str:
        return str((self.obj.get("metadata") or {}).get("namespace") or "")

    def __str__(self) -> str:
        """For messages: `web.yaml:1: Deployment web`."""
        return f"{self.file}:{self.line}: {self.kind} {self.name}".rstrip()

    def check_fields(self) -> None:
        """Raises PlanError if a field is not known, as kubectl does: it would be ignored."""
        group = str(self.obj["apiVersion"]).rpartition("/")[0]
        for path, nearest in unknown_fields(group, self.kind, self.obj).items():
            hint = f"; did you mean {nearest}?" if nearest else ""
            raise PlanError(f"{self}: {path}: unknown field{hint}")


def read_manifests(paths: Sequence[str]) -> list[Manifest]:
    """The objects of these files, in order.

    Raises:
        PlanError: a file is missing, is not YAML or JSON, or contains something other than objects.
    """
    return [manifest for path in paths for manifest in _read(path)]


def _read(path: str) -> Iterator[Manifest]:
    name = "standard input" if path == STDIN else path
    try:
        text = sys.stdin.buffer.read() if path == STDIN else read_file(path, MAX_BYTES)
    except OSError as error:
        raise PlanError(f"{name}: {error.strerror or error}") from None
    yield from parse_manifests(name, text)


def parse_manifests(name: str, text: bytes) -> list[Manifest]:
    """The objects of a text; `name` identifies it in messages.

    Raises PlanError as `read_manifests` does.
    """
    manifests = [
        Manifest(name, line, obj)
        for line, value in _documents(name, text)
        for obj in _objects(name, line, value)
    ]
    if not manifests:
        raise PlanError(f"{name}: no objects in it")
    return manifests


def _documents(name: str, text: bytes) -> Iterator[tuple[int, Any]]:
    if text.lstrip()[:1] in (b"{", b"["):
        try:
            yield 1, msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise PlanError(f"{name}: not valid JSON: {error}") from None
        return
    begin, line = 0, 1
    for match in [*_MARKER.finditer(text), None]:
        end, after = match.span() if match is not None else (len(text), len(text))
        value = _yaml(name, line, text[begin:end])
        if value is not None:
            yield line, value
        line += text.count(b"\n", begin, after)
        begin = after


def _yaml(name: str, line: int, text: bytes) -> Any:  # noqa: ANN401  # any JSON value
    try:
        return load(text)
    except YamlError as error:
        raise PlanError(f"{name}:{line + (error.line or 1) - 1}: {error.message}") from None


def _objects(name: str, line: int, value: object) -> Iterator[JsonObject]:
    if isinstance(value, dict) and isinstance(value.get("items"), list):
        for item in value["items"]:
            yield from _objects(name, line, item)
        return
    if not isinstance(value, dict):
        raise PlanError(f"{name}:{line}: neither an object nor a list of objects")
    for field in ("apiVersion", "kind"):
        if not isinstance(value.get(field), str) or not value[field]:
            raise PlanError(f"{name}:{line}: {field}: missing")
    if not isinstance(value.get("metadata", {}), dict):
        raise PlanError(f"{name}:{line}: {value['kind']}: metadata: expected an object")
    yield value
