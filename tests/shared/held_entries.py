"""How many entries the structures behind an object hold, by the class and attribute that hold
them.
"""

from __future__ import annotations

import types
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec
import numpy as np

_PLAIN = (str, bytes, bytearray, int, float, bool, type(None), type, types.ModuleType, memoryview)


def held_entries(root: object, *, without: Iterable[object] = ()) -> Counter[str]:
    """`Class.attribute` -> entries of all dictionaries, lists, sets and arrays in it, at any depth.

    Objects of the API are not looked into: they are counted where they are held.
    """
    counts: Counter[str] = Counter()
    seen = {id(each) for each in without}
    todo: list[tuple[object, str]] = [(root, "")]
    while todo:
        obj, label = todo.pop()
        if isinstance(obj, (_PLAIN, msgspec.Struct)) or id(obj) in seen:
            continue
        seen.add(id(obj))
        if isinstance(obj, np.ndarray):
            counts[label] += obj.size
        elif isinstance(obj, Mapping | WeakValueDictionary | WeakKeyDictionary):
            counts[label] += len(obj)
            todo += ((each, label) for pair in list(obj.items()) for each in pair)
        elif isinstance(obj, list | tuple | set | frozenset | deque):
            counts[label] += len(obj)
            todo += ((each, label) for each in obj)
        else:
            todo += _parts(obj)
    return counts


def _parts(obj: Any) -> Iterable[tuple[object, str]]:
    if isinstance(obj, types.MethodType):
        return [(obj.__self__, ""), (obj.__func__, "")]
    if isinstance(obj, types.FunctionType):
        cells = zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=True)
        return [(cell.cell_contents, f"{obj.__qualname__}: {name}") for name, cell in cells]
    if not type(obj).__module__.startswith("kubesched"):
        return [(each, type(obj).__name__) for each in getattr(obj, "args", ()) or ()]
    names = [*getattr(obj, "__dict__", ())]
    names += [name for cls in type(obj).__mro__ for name in getattr(cls, "__slots__", ())]
    own = type(obj).__name__
    return [(getattr(obj, name, None), f"{own}.{name}") for name in names if name != "__weakref__"]
