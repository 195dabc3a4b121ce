"""Reads what `kubesched.insight.page.columns` packs: the plain twin of the browser's columns.js."""

import json
import struct

import numpy as np

TYPES = {"Uint8": "u1", "Int16": "i2", "Int32": "i4", "Uint32": "u4", "Float64": "f8"}


def unpack(data):
    (length,) = struct.unpack_from("<I", data)
    header = json.loads(data[4 : 4 + length])
    columns = {}
    for each in header.pop("columns"):
        start = 4 + length + each["at"]
        assert start % 8 == 0, "typed arrays must be aligned"
        kind = np.dtype("<" + TYPES[each["type"]])
        columns[each["name"]] = np.frombuffer(data, kind, each["length"], start)
    return header, columns
