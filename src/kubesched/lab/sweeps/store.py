"""Results on disk, one file per cell, named by the hash of its inputs.

Files are written to a temporary name and renamed, so they are complete or absent.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec

from kubesched.base.errors import KubeschedError
from kubesched.base.version import __version__


def key_of_cell(**inputs: object) -> str:
    """Hash of named inputs and kubesched's version; values without a JSON form use `repr`."""
    known = {"version": __version__, **inputs}
    text = msgspec.json.encode(known, enc_hook=repr, order="sorted")
    return hashlib.sha256(text).hexdigest()


class ResultStore:
    """A folder of results; None stores nothing."""

    def __init__(self, folder: str | None) -> None:
        """Raises KubeschedError."""
        self._folder = Path(folder) if folder is not None else None
        if self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise KubeschedError(f"{folder}: {error.strerror or error}") from None

    def get(self, key: str) -> bytes | None:
        if self._folder is None:
            return None
        try:
            return (self._folder / f"{key}.json").read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise KubeschedError(f"{self._folder}: {error.strerror or error}") from None

    def put(self, key: str, result: bytes) -> None:
        if self._folder is None:
            return
        try:
            handle, name = tempfile.mkstemp(dir=self._folder, prefix=f".{key}.")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(result)
                os.replace(name, self._folder / f"{key}.json")
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(name)
                raise
        except OSError as error:
            raise KubeschedError(f"{self._folder}: {error.strerror or error}") from None
