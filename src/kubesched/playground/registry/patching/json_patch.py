"""JSON Patch (RFC 6902). Pure: changes neither the document nor the patch.

The operations change a copy in place whose parts are not shared, so the cost of an operation
depends on the size of the patch. Only `copy` can grow a document faster, and is limited.
"""

from __future__ import annotations

from kubesched.base.errors import BadRequest, Invalid
from kubesched.playground.apimachinery.objects import Json, JsonObject, decode, encode

MAX_OPERATIONS = 10_000  # upstream's limit per patch
MAX_COPIED_BYTES = 3 * 1024 * 1024  # upstream's limit


def apply_json_patch(document: JsonObject, operations: Json) -> Json:
    """The document after all operations; a failing `test` or path rejects the whole patch."""
    if not isinstance(operations, list):
        raise BadRequest("error decoding patch: a JSON patch must be a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise BadRequest(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS},"
            f" got {len(operations)}",
        )
    patching = _Patching(document)
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise BadRequest("error decoding patch: every operation needs an op and a path")
        patching.apply(operation)
    return patching.document


class _Patching:
    """A document that is being patched."""

    def __init__(self, document: JsonObject) -> None:
        self.document: Json = decode(encode(document))
        self._copied = 0

    def apply(self, operation: JsonObject) -> None:
        op = operation.get("op")
        path = _parse_pointer(operation["path"])
        if op in ("add", "replace", "test"):
            if "value" not in operation and op != "test":
                raise BadRequest(
                    f"error decoding patch: operation {op} at {operation['path']} has no value"
                )
            value = operation.get("value")
            if op == "test":
                if _lookup(self.document, path, missing=None) != value:
                    raise _rejected(f"testing path {operation['path']} failed")
            else:
                self._put(path, decode(encode(value)), replace=op == "replace")
        elif op == "remove":
            self._remove(path)
        elif op == "move":
            source = _parse_pointer(str(operation.get("from", "")))
            if path[: len(source)] == source and path != source:
                raise _rejected(f"cannot move {operation['from']} into itself")
            value = _lookup(self.document, source)
            self._remove(source)
            self._put(path, value)
        elif op == "copy":
            source = _parse_pointer(str(operation.get("from", "")))
            self._put(path, self._copy(_lookup(self.document, source)))
        else:
            raise BadRequest(f"error decoding patch: unexpected operation kind {op!r}")

    def _copy(self, value: Json) -> Json:
        written = encode(value)
        self._copied += len(written)
        if self._copied > MAX_COPIED_BYTES:
            raise _rejected(
                "Unable to complete the copy, the accumulated size increase of copy is"
                f" {self._copied}, exceeding the limit {MAX_COPIED_BYTES}"
            )
        return decode(written)

    def _put(self, path: list[str], value: Json, *, replace: bool = False) -> None:
        if not path:
            self.document = value
            return
        holder, part = _lookup(self.document, path[:-1], full=path), path[-1]
        if isinstance(holder, list):
            if replace:
                holder[_index(part, len(holder))] = value
            else:
                holder.insert(len(holder) if part == "-" else _index(part, len(holder) + 1), value)
        elif isinstance(holder, dict) and (part in holder or not replace):
            holder[part] = value
        else:
            raise _missing(path)

    def _remove(self, path: list[str]) -> None:
        if not path:
            raise _rejected("the whole object cannot be removed")
        holder, part = _lookup(self.document, path[:-1], full=path), path[-1]
        if isinstance(holder, list):
            del holder[_index(part, len(holder))]
        elif isinstance(holder, dict) and part in holder:
            del holder[part]
        else:
            raise _missing(path)


def _rejected(detail: str) -> Invalid:
    return Invalid(f"the server rejected our request due to an error in our request: {detail}")


def _parse_pointer(pointer: str) -> list[str]:
    if pointer == "":
        return []
    if not pointer.startswith("/"):
        raise _rejected(f"path {pointer!r} must start with '/'")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]


def _index(part: str, length: int) -> int:
    """Parse a list index as in RFC 6901; rejects an index that is out of range."""
    if not part.isascii() or not part.isdigit() or (len(part) > 1 and part[0] == "0"):
        raise _rejected(f"invalid array index {part!r}")
    index = int(part)
    if index >= length:
        raise _rejected(f"array index {part} is out of bounds")
    return index


_REFUSE = object()


def _lookup(
    document: Json, path: list[str], missing: Json = _REFUSE, *, full: list[str] | None = None
) -> Json:
    """The value at a path; errors name the path `full`, if given."""
    for part in path:
        if isinstance(document, list):
            document = document[_index(part, len(document))]
        elif isinstance(document, dict) and part in document:
            document = document[part]
        elif missing is not _REFUSE:
            return missing
        else:
            raise _missing(full or path)
    return document


def _missing(path: list[str]) -> Invalid:
    return _rejected(f"the path /{'/'.join(path)} does not exist")
