"""Profiles in pprof's format: a protocol buffer (profile.proto), compressed.

Read from kube-scheduler's endpoints. Supports only what that needs: stacks with one value each.
"""

from __future__ import annotations

import gzip
import zlib
from typing import Final

from kubesched.api.protobuf import Message, ProtobufError

# Fields of a Profile, and of the messages in it.
_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRING = 1, 2, 4, 5, 6
_KIND, _UNIT = 1, 2
_SAMPLE_LOCATIONS, _SAMPLE_VALUES = 1, 2
_ID: Final = 1
"""Id of a location and of a function."""
_LOCATION_LINES, _LINE_FUNCTION = 4, 1
_FUNCTION_NAME = 2

CPU: Final = ("cpu", "nanoseconds")
ALLOCATED: Final = ("alloc_space", "bytes")
"""Since program start."""


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
