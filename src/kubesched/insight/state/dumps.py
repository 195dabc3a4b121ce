"""Loads dumps of `kubectl get … -o json|yaml` or `kubesched snapshot`: files, folders or stdin."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from kubesched.client.informers.sharing import Sharing
from kubesched.insight.state.cluster_state import KINDS, ClusterState, Problem, StateError
from kubesched.insight.state.collector import collector_paused
from kubesched.insight.state.documents import DocumentReader

STDIN = "-"
SUFFIXES = (".json", ".jsonl", ".yaml", ".yml")
"""Suffixes read in a directory, also with `.gz`; a file given by name may have any."""
MAX_BYTES = 16 << 30
"""Maximum uncompressed size of one file, so that it cannot exhaust memory."""

_CHUNK = 64 << 10
_GZIP_MAGIC = b"\x1f\x8b"


def load_dumps(paths: Sequence[str]) -> ClusterState:
    """All objects in these files.

    Raises:
        StateError: a file is missing, unreadable or malformed; names every malformed object.
    """
    state = ClusterState(", ".join("standard input" if path == STDIN else path for path in paths))
    state.missing = {kind.resource: "" for kind in KINDS}  # until it is found
    problems: list[Problem] = []
    sharing = Sharing()
    with collector_paused(lambda: len(state)):
        for path in _files(paths):
            _load(path, state, problems, sharing)
    if problems:
        raise StateError(problems)
    for kind in KINDS:
        if state.count(kind.record):
            state.missing.pop(kind.resource, None)
    if state.skipped:
        listed = ", ".join(f"{count} {kind}" for kind, count in sorted(state.skipped.items()))
        state.notes.append(f"skipped objects that scheduling does not read: {listed}")
    if state.duplicate_count:
        state.notes.append(
            f"{state.duplicate_count} objects came more than once; the newest revision counts"
        )
    return state


def _load(path: str, state: ClusterState, problems: list[Problem], sharing: Sharing) -> None:
    name = "standard input" if path == STDIN else path
    reader = DocumentReader(state, name, problems, sharing)
    try:
        with _opened(path) as stream:
            reader.read(unpacked(stream))
    except OSError as error:
        if not isinstance(error, gzip.BadGzipFile):
            raise StateError(f"{name}: {error.strerror or error}") from None
        raise StateError(f"{name}: not valid gzip: {error}") from None
    except (EOFError, zlib.error) as error:
        raise StateError(f"{name}: not valid gzip: {error}") from None
    except StateError as error:
        raise StateError(f"{name}: {error}") from None


def _opened(path: str) -> contextlib.AbstractContextManager[io.BufferedReader]:
    if path == STDIN:
        return contextlib.nullcontext(cast("io.BufferedReader", sys.stdin.buffer))
    return open(path, "rb")  # the caller closes it


def unpacked(stream: io.BufferedReader) -> Iterator[bytes]:
    """The contents of a stream in pieces, decompressed if it is gzip.

    Raises:
        StateError: the content is too large.
        EOFError, gzip.BadGzipFile, zlib.error: the compressed data is damaged or truncated.
    """
    is_packed = stream.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC)
    contents = gzip.GzipFile(fileobj=stream) if is_packed else stream
    size = 0
    while chunk := contents.read(_CHUNK):
        size += len(chunk)
        if size > MAX_BYTES:
            raise StateError(f"larger than {MAX_BYTES >> 20} MiB unpacked")
        yield chunk


def _files(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        if path == STDIN or not os.path.isdir(path):
            yield path
            continue
        files = sorted(
            str(file)
            for file in Path(path).rglob("*")
            if file.name.removesuffix(".gz").endswith(SUFFIXES) and file.is_file()
        )
        if not files:
            raise StateError(f"{path}: no {', '.join(SUFFIXES)} files in this directory")
        yield from files
