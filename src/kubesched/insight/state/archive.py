"""Snapshot archives: a header, then one object per line, compressed.

An archive is JSON lines in gzip. The header is a line like any other object, of the kind
`Snapshot`; the objects follow as the API would return them. So `zcat`, `jq` and `kubectl apply
--dry-run` can read it, and it loads like any other dump (`documents`).
"""

from __future__ import annotations

import gzip
import os
import tempfile
from contextlib import suppress
from typing import Any, BinaryIO

import msgspec

from kubesched.api import codec
from kubesched.api.times import format_time
from kubesched.base.version import __version__
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.problems import StateError

API_GROUP = "snapshot.kubesched.io"
VERSION = 1
KIND = "Snapshot"

_COMPRESSION = 6


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The first line."""

    api_version: str
    kind: str = msgspec.field(default_factory=lambda: KIND)  # a plain default would not be written
    made_by: str = ""
    made_at: str = ""
    source: str = ""
    resource_versions: dict[str, str] = {}
    missing: list[str] = []
    notes: list[str] = []
    finished_pods: int = 0


def is_header(api_version: str, kind: str) -> bool:
    return kind == KIND and api_version.startswith(f"{API_GROUP}/")


def read_header(raw: Any, state: ClusterState) -> None:  # noqa: ANN401  # any buffer
    """Store an archive's metadata in the state.

    Raises:
        StateError: a newer kubesched wrote it, or the header is invalid.
    """
    try:
        header = msgspec.json.decode(raw, type=Header)
    except codec.DECODE_ERRORS as error:
        raise StateError(f"not a valid snapshot header: {codec.reworded(error)}") from None
    version = header.api_version.removeprefix(f"{API_GROUP}/v")
    if not version.isdecimal() or int(version) > VERSION:
        raise StateError(
            f"this snapshot has format {header.api_version}, made by kubesched {header.made_by}; "
            f"kubesched {__version__} reads {API_GROUP}/v{VERSION} and older"
        )
    state.resource_versions.update(header.resource_versions)
    state.missing = {one: "" for one in state.missing if one in header.missing}
    state.notes += header.notes
    state.finished_count += header.finished_pods
    made = f"snapshot of {header.source}" if header.source else "snapshot"
    state.source = f"{state.source} ({made}, {header.made_at})"


def write_archive(state: ClusterState, file: BinaryIO, *, now: float) -> None:
    """Write an archive of an already redacted state."""
    header = Header(
        api_version=f"{API_GROUP}/v{VERSION}",
        made_by=__version__,
        made_at=format_time(now),
        source=state.source,
        resource_versions=state.resource_versions,
        missing=list(state.missing),
        notes=state.notes,
        finished_pods=state.finished_count,
    )
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_COMPRESSION, mtime=0) as packed:
        packed.write(codec.encode(header) + b"\n")
        for obj in state:
            packed.write(codec.encode(obj) + b"\n")


def save_archive(state: ClusterState, path: str, *, now: float) -> None:
    """Write an archive that only its owner can read; replaces an existing file atomically.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".snapshot-")  # with mode 0600
    try:
        with open(handle, "wb") as file:
            write_archive(state, file, now=now)
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
