"""JSON Patch (RFC 6902). Pure: the document given is never changed, the result shares what was not touched."""

from __future__ import annotations

from kubesched.embedded.apimachinery.objects import Json, JsonObject
from kubesched.errors import BadRequest, Invalid

MAX_OPERATIONS = 10_000  # upstream's limit per patch


def apply_json_patch(document: JsonObject, operations: Json) -> Json:
    """The document after all operations; a failing `test` or path refuses the whole patch."""
    if not isinstance(operations, list):
        raise BadRequest("error decoding patch: a JSON patch must be a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise BadRequest(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}",
        )
    result: Json = document
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise BadRequest("error decoding patch: every operation needs an op and a path")
        result = _apply_one(result, operation)
    return result


def _apply_one(document: Json, operation: JsonObject) -> Json:
    op = operation.get("op")
    path = _parse_pointer(operation["path"])
    if op in ("add", "replace", "test"):
        if "value" not in operation and op != "test":
            raise BadRequest(
                f"error decoding patch: operation {op} at {operation['path']} has no value"
            )
        value = operation.get("value")
        if op == "test":
            if _lookup(document, path, missing=None) != value:
                raise Invalid(
                    f"the server rejected our request due to an error in our request: testing path {operation['path']} failed"
                )
            return document
        return _with(document, path, value, replace=op == "replace")
    if op == "remove":
        return _without(document, path)
    if op in ("move", "copy"):
        source = _parse_pointer(str(operation.get("from", "")))
        value = _lookup(document, source)
        if op == "move":
            if path[: len(source)] == source and path != source:
                raise _rejected(f"cannot move {operation['from']} into itself")
            document = _without(document, source)
        return _with(document, path, value, replace=False)
    raise BadRequest(f"error decoding patch: unexpected operation kind {op!r}")


def _rejected(detail: str) -> Invalid:
    return Invalid(f"the server rejected our request due to an error in our request: {detail}")


def _parse_pointer(pointer: str) -> list[str]:
    if pointer == "":
        return []
    if not pointer.startswith("/"):
        raise _rejected(f"path {pointer!r} must start with '/'")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]


def _index(part: str, length: int) -> int:
    """A list position as RFC 6901 writes it; out of range is refused."""
    if not part.isascii() or not part.isdigit() or (len(part) > 1 and part[0] == "0"):
        raise _rejected(f"invalid array index {part!r}")
    index = int(part)
    if index >= length:
        raise _rejected(f"array index {part} is out of bounds")
    return index


_REFUSE = object()


def _lookup(document: Json, path: list[str], missing: Json = _REFUSE) -> Json:
    for part in path:
        if isinstance(document, list):
            document = document[_index(part, len(document))]
        elif isinstance(document, dict) and part in document:
            document = document[part]
        elif missing is not _REFUSE:
            return missing
        else:
            raise _missing(path)
    return document


def _missing(path: list[str]) -> Invalid:
    return _rejected(f"the path /{'/'.join(path)} does not exist")


def _with(document: Json, path: list[str], value: Json, *, replace: bool) -> Json:
    if not path:
        return value
    part, rest = path[0], path[1:]
    if isinstance(document, list):
        copy = list(document)
        if rest:
            index = _index(part, len(copy))
            copy[index] = _with(copy[index], rest, value, replace=replace)
        elif replace:
            copy[_index(part, len(copy))] = value
        else:
            copy.insert(len(copy) if part == "-" else _index(part, len(copy) + 1), value)
        return copy
    if isinstance(document, dict):
        if rest:
            if part not in document:
                raise _missing(path)
            return {**document, part: _with(document[part], rest, value, replace=replace)}
        if replace and part not in document:
            raise _missing(path)
        return {**document, part: value}
    raise _missing(path)


def _without(document: Json, path: list[str]) -> Json:
    if not path:
        raise _rejected("the whole object cannot be removed")
    part, rest = path[0], path[1:]
    if isinstance(document, list):
        index = _index(part, len(document))
        copy = list(document)
        if rest:
            copy[index] = _without(copy[index], rest)
        else:
            del copy[index]
        return copy
    if not isinstance(document, dict) or part not in document:
        raise _missing(path)
    if rest:
        return {**document, part: _without(document[part], rest)}
    return {key: value for key, value in document.items() if key != part}
