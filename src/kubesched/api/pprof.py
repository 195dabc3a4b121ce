"""Profiles in pprof's format: a protocol buffer (profile.proto), compressed.

Written by `/debug/pprof/profile`, and read from kube-scheduler's endpoints. Supports only what both
need: stacks with one value each.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Mapping
from typing import Final

from kubesched.api.protobuf import Message, ProtobufError, bytes_field, varint

Stack = tuple[tuple[str, str, int], ...]
"""(function, file, line), innermost first."""

# Fields of a Profile, and of the messages in it.
_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRING = 1, 2, 4, 5, 6
_TIME, _DURATION, _PERIOD_TYPE, _PERIOD = 9, 10, 11, 12
_KIND, _UNIT = 1, 2
_SAMPLE_LOCATIONS, _SAMPLE_VALUES = 1, 2
_ID: Final = 1
"""Id of a location and of a function."""
_LOCATION_LINES, _LINE_FUNCTION, _LINE_NUMBER = 4, 1, 2
_FUNCTION_NAME, _FUNCTION_SYSTEM_NAME, _FUNCTION_FILE = 2, 3, 4

CPU: Final = ("cpu", "nanoseconds")
ALLOCATED: Final = ("alloc_space", "bytes")
"""Since program start."""


def encode(samples: Mapping[Stack, int], began: float, seconds: float, samples_per_s: int) -> bytes:
    """A profile with two values per sample: count, and the nanoseconds it represents."""
    strings: dict[str, int] = {"": 0}
    locations: dict[tuple[str, str, int], int] = {}
    functions: dict[tuple[str, str], int] = {}
    parts: list[bytes] = []

    def string(value: str) -> int:
        return strings.setdefault(value, len(strings))

    def value_type(kind: str, unit: str) -> bytes:
        return _number(_KIND, string(kind)) + _number(_UNIT, string(unit))

    parts += [
        bytes_field(_SAMPLE_TYPE, value_type("samples", "count")),
        bytes_field(_SAMPLE_TYPE, value_type(*CPU)),
    ]
    period = 10**9 // samples_per_s
    for stack, count in samples.items():
        ids = [locations.setdefault(entry, len(locations) + 1) for entry in stack]
        values = _packed(_SAMPLE_VALUES, [count, count * period])
        parts.append(bytes_field(_SAMPLE, _packed(_SAMPLE_LOCATIONS, ids) + values))
    for (name, file, line), number in locations.items():
        function = functions.setdefault((name, file), len(functions) + 1)
        where = _number(_LINE_FUNCTION, function) + _number(_LINE_NUMBER, line)
        parts.append(
            bytes_field(_LOCATION, _number(_ID, number) + bytes_field(_LOCATION_LINES, where))
        )
    for (name, file), number in functions.items():
        shown = string(name)
        names = _number(_FUNCTION_NAME, shown) + _number(_FUNCTION_SYSTEM_NAME, shown)
        where = _number(_FUNCTION_FILE, string(file))
        parts.append(bytes_field(_FUNCTION, _number(_ID, number) + names + where))
    period_type = value_type(*CPU)
    parts += [bytes_field(_STRING, value.encode()) for value in strings]
    parts += [
        _number(_TIME, int(began * 1e9)),
        _number(_DURATION, int(seconds * 1e9)),
        bytes_field(_PERIOD_TYPE, period_type),
        _number(_PERIOD, period),
    ]
    return gzip.compress(b"".join(parts))


def _number(tag: int, value: int) -> bytes:
    return varint(tag << 3) + varint(value)


def _packed(tag: int, values: Iterable[int]) -> bytes:
    return bytes_field(tag, b"".join(map(varint, values)))


def decode(data: bytes, kind: tuple[str, str] = CPU) -> dict[tuple[str, ...], int]:
    """Values of one kind by stack; by default nanoseconds of CPU.

    The functions of a stack come innermost first, inlined ones included.

    Raises:
        ProtobufError: it is not a profile of that kind.
    """
    try:
        profile = Message(gzip.decompress(data))
    except (OSError, EOFError, zlib.error) as error:
        raise ProtobufError(f"not compressed as profiles are: {error}") from None
    strings = profile.texts(_STRING)
    try:
        kinds = [
            (strings[each.integer(_KIND)], strings[each.integer(_UNIT)])
            for each in profile.messages(_SAMPLE_TYPE)
        ]
        if kind not in kinds:
            raise ProtobufError(f"no profile of {' in '.join(kind)}; its values are {kinds}")
        value = kinds.index(kind)
        functions = {
            function.integer(_ID): strings[function.integer(_FUNCTION_NAME)]
            for function in profile.messages(_FUNCTION)
        }
        places = {
            location.integer(_ID): [
                functions[line.integer(_LINE_FUNCTION)]
                for line in location.messages(_LOCATION_LINES)
            ]
            for location in profile.messages(_LOCATION)
        }
        values: dict[tuple[str, ...], int] = {}
        for sample in profile.messages(_SAMPLE):
            ids = sample.integers(_SAMPLE_LOCATIONS)
            stack = tuple(name for place in ids for name in places[place])
            values[stack] = values.get(stack, 0) + sample.integers(_SAMPLE_VALUES)[value]
    except (IndexError, KeyError) as error:
        raise ProtobufError(f"a profile that refers to what is not in it: {error}") from None
    return values
