"""The column format: a JSON header, then arrays that become typed arrays without copying.

    4 bytes   length of the header, little endian
    header    JSON: `columns` lists name, type and offset of every array; other keys are free
    arrays    each at a multiple of 8 bytes from the end of the padded header

Texts are sent as one UTF-8 byte array with a zero byte after each text.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

CONTENT_TYPE: Final = "application/octet-stream"
_LENGTH: Final = struct.Struct("<I")
_ALIGNMENT: Final = 8
_TYPES: Final = {"u1": "Uint8", "i2": "Int16", "i4": "Int32", "u4": "Uint32", "f8": "Float64"}

Array = NDArray[Any]


def texts(values: Iterable[str]) -> Array:
    """Encode texts as a byte column. Zero bytes in a text are replaced, since they end a text."""
    joined = "".join([f"{value}\0" for value in (text.replace("\0", "\ufffd") for text in values)])
    return np.frombuffer(joined.encode("utf-8", "replace"), dtype=np.uint8)


def pack(header: Mapping[str, Any], columns: Mapping[str, Array]) -> bytes:
    """One message of header and columns; 64-bit integers become doubles for the browser."""
    parts: list[bytes] = []
    listed: list[dict[str, Any]] = []
    offset = 0
    for name, values in columns.items():
        array = np.ascontiguousarray(_portable(values))
        data = array.tobytes()
        listed.append(
            {"name": name, "type": _TYPES[array.dtype.str[1:]], "at": offset, "length": len(array)}
        )
        padding = -len(data) % _ALIGNMENT
        parts += [data, bytes(padding)]
        offset += len(data) + padding
    head = msgspec.json.encode({**header, "columns": listed})
    head += b" " * (-(len(head) + _LENGTH.size) % _ALIGNMENT)
    return b"".join([_LENGTH.pack(len(head)), head, *parts])


def _portable(values: Array) -> Array:
    if values.dtype == np.bool_:
        return values.astype(np.uint8)
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        return values.astype("<f8")
    return values.astype(values.dtype.newbyteorder("<"), copy=False)
