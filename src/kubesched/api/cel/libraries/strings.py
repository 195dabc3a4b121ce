"""Extended string functions, version 2."""

from __future__ import annotations

from kubesched.api.cel import costs, operators
from kubesched.api.cel.environment import CallCost, Library, declare
from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.libraries.formatting import format_text
from kubesched.api.cel.values import Value
from kubesched.base.logs import GO_ESCAPES

_GO_SPACE = (
    " \t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_QUOTED = str.maketrans(GO_ESCAPES)
_LOWER = str.maketrans({chr(code): chr(code + 32) for code in range(65, 91)})
_UPPER = str.maketrans({chr(code + 32): chr(code) for code in range(65, 91)})


def _out_of_range(index: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return text.find(part, offset)


def _last_index_of(text: str, part: str) -> int:
    if not part:
        return len(text)
    if len(text.encode(errors="replace")) < len(part.encode(errors="replace")):
        return -1
    return _last_index_of_offset(text, part, len(text) - 1)


def _last_index_of_offset(text: str, part: str, offset: int) -> int:
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    if offset >= len(text):
        return -1
    return text.rfind(part, 0, offset + len(part))


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    count = text.count(old) if old else len(text) + 1
    if limit >= 0:
        count = min(count, limit)
    operators.checked_size(len(text) + count * max(len(new) - len(old), 0))
    return text.replace(old, new, limit)


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if separator:
        return text.split(separator, limit - 1 if limit > 0 else -1)
    if 0 < limit < len(text):
        return [*text[: limit - 1], text[limit - 1 :]]
    return list(text)


def _substring(text: str, start: int) -> str:
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    return text[start:]


def _substring_range(text: str, start: int, end: int) -> str:
    if start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= len(text):
            raise _out_of_range(index)
    return text[start:end]


def _join(elements: list[Value], separator: str = "") -> str:
    length = 0
    for element in elements:
        if not isinstance(element, str):
            raise EvaluationError(f"join: invalid input: {operators.show(element)}")
        length += len(element) + len(separator)
    operators.checked_size(length)
    return separator.join(elements)


def _quote(text: str) -> str:
    return f'"{text.translate(_QUOTED)}"'


_COSTS: dict[str, CallCost] = {
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), costs.of_first_argument),
    **dict.fromkeys(("replace", "split"), costs.of_first_argument_twice),
    **dict.fromkeys(("indexOf", "lastIndexOf"), costs.of_whole_tree),
    "join": costs.of_join,
}

STRINGS = Library(
    "strings",
    (
        declare(".charAt(string, int) -> string", _char_at),
        declare(".indexOf(string, string) -> int", _index_of),
        declare(".indexOf(string, string, int) -> int", _index_of),
        declare(".lastIndexOf(string, string) -> int", _last_index_of),
        declare(".lastIndexOf(string, string, int) -> int", _last_index_of_offset),
        declare(".lowerAscii(string) -> string", lambda text: text.translate(_LOWER)),
        declare(".upperAscii(string) -> string", lambda text: text.translate(_UPPER)),
        declare(".replace(string, string, string) -> string", _replace),
        declare(".replace(string, string, string, int) -> string", _replace),
        declare(".split(string, string) -> list(string)", _split),
        declare(".split(string, string, int) -> list(string)", _split),
        declare(".substring(string, int) -> string", _substring),
        declare(".substring(string, int, int) -> string", _substring_range),
        declare(".trim(string) -> string", lambda text: text.strip(_GO_SPACE)),
        declare(".join(list(string)) -> string", _join),
        declare(".join(list(string), string) -> string", _join),
        declare(".format(string, list(dyn)) -> string", format_text, cost=costs.of_first_argument),
        declare("strings.quote(string) -> string", _quote, cost=costs.of_first_argument),
    ),
    costs=_COSTS,
)
