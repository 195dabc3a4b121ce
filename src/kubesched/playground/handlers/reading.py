"""The reading verbs over HTTP: get, list with pages and selectors, and list revisions."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from itertools import islice

import msgspec

from kubesched.api import field_errors
from kubesched.api.field_errors import forbidden, not_supported
from kubesched.base.errors import BadRequest, Gone, ServerError
from kubesched.playground.apimachinery.failures import ContinueExpired, invalid_options
from kubesched.playground.apimachinery.objects import JsonObject, decode, encode
from kubesched.playground.apimachinery.selectors import (
    Predicate,
    combine,
    compile_field_selector,
    compile_label_selector,
)
from kubesched.playground.handlers.exchange import ApiResponse, Query
from kubesched.playground.handlers.routes import SIMULATED, Call, Target, simulated
from kubesched.playground.handlers.tables import table_of
from kubesched.playground.registry.representation import encode_list, encoder_for
from kubesched.playground.registry.rest_storage import RestStorage
from kubesched.playground.registry.scale import scale_of
from kubesched.playground.storage.store import Entry

_CONTINUE_VERSION = "meta.k8s.io/v1"
_CONTINUE_LIFETIME_S = 300  # upstream: as long as etcd keeps old revisions
_AT_NEWEST = -1  # the revision in a token that continues an expired list


@dataclass(slots=True)
class Page:
    """Entries of one list response, and the data needed to continue the list."""

    entries: list[Entry]
    revision: int
    continue_token: str = ""
    remaining: int | None = None

    def metadata(self) -> JsonObject:
        metadata: JsonObject = {"resourceVersion": str(self.revision)}
        if self.continue_token:
            metadata["continue"] = self.continue_token
            if self.remaining is not None:
                metadata["remainingItemCount"] = self.remaining
        return metadata


def get(call: Call) -> ApiResponse:
    """One object, or its scale."""
    target = call.target
    entry = call.registry.get(target.resource, call.namespace, target.name)
    if target.subresource == "scale":
        return ApiResponse(200, encode(scale_of(target.resource, entry.obj)))
    if target.subresource in SIMULATED:
        raise simulated(entry.obj, target.subresource)
    if target.subresource == "log":
        return ApiResponse(200, _log_of(entry.obj), "text/plain")
    return entry_response(call, entry)


def entry_response(call: Call, entry: Entry, status: int = 200) -> ApiResponse:
    """One entry in the view that the client requested."""
    if call.accepted.view == "Table":
        return _table(call, Page([entry], entry.revision), status)
    metadata_only = call.accepted.view == "PartialObjectMetadata"
    encoder = encoder_for(call.target.resource, metadata_only=metadata_only)
    return ApiResponse(status, encoder(entry))


def _table(call: Call, page: Page, status: int = 200) -> ApiResponse:
    shown = call.query.get("includeObject")
    resource, metadata = call.target.resource, page.metadata()
    table = table_of(call.registry, resource, page.entries, metadata, shown)
    table["apiVersion"] = f"meta.k8s.io/{call.accepted.version}"
    return ApiResponse(status, encode(table))


def list_(call: Call) -> ApiResponse:
    """A page of a collection."""
    resource = call.target.resource
    page = list_page(call)
    if call.accepted.view == "Table":
        return _table(call, page)
    metadata_only = bool(call.accepted.view)
    body = encode_list(resource, page.metadata(), page.entries, metadata_only=metadata_only)
    return ApiResponse(200, body)


def list_page(call: Call) -> Page:
    """The entries of a list request, at one revision."""
    registry, target, query = call.registry, call.target, call.query
    collection = registry.store.collection(target.resource.storage_key)
    matches = selection(target, query)
    limit = query.integer("limit") or 0
    if limit < 0:
        raise BadRequest("limit: Invalid value: must be non-negative")
    token = query.get("continue")
    start, begun_at = None, int(registry.clock.now())
    if token:
        if query.get("resourceVersion") not in ("", "0") or query.has("resourceVersionMatch"):
            raise BadRequest("specifying resource version is not allowed when using continue")
        revision, start, token_begun_at = decode_continue(token)
        if revision == _AT_NEWEST:
            revision = registry.store.revision
        elif begun_at - token_begun_at > _CONTINUE_LIFETIME_S:
            raise _continue_expired(start)
        else:
            begun_at = token_begun_at
    else:
        revision = _list_revision(registry, query)
    if revision > registry.store.revision:
        raise BadRequest("continue key is not valid: it names a revision that does not exist yet")
    try:
        if revision != registry.store.revision:
            collection.require_history(revision)
        is_current = revision >= collection.changed_at
        if is_current:
            entries = collection.entries(target.namespace, start)
        else:
            entries = (
                entry
                for entry in collection.entries_at(revision, target.namespace)
                if start is None or _key(entry) > start
            )
        chosen = entries if matches is None else (entry for entry in entries if matches(entry.obj))
        page = list(islice(chosen, limit)) if limit else list(chosen)
    except Gone:
        if start is not None:
            raise _continue_expired(start) from None
        raise
    if not limit or len(page) < limit:
        return Page(page, revision)
    if matches is None and is_current:
        rest = collection.count_entries(target.namespace, _key(page[-1]))
    else:
        rest = sum(1 for _ in chosen)
    if not rest:
        return Page(page, revision)
    # Upstream: with a selector the server does not know how many are left, and says nothing.
    remaining = rest if matches is None else None
    return Page(page, revision, encode_continue(revision, _key(page[-1]), begun_at), remaining)


def selection(target: Target, query: Query) -> Predicate | None:
    """The predicate for the request's selectors and the name in its path."""
    predicates = [
        compile_label_selector(query.get("labelSelector")),
        compile_field_selector(target.resource, query.get("fieldSelector")),
    ]
    if target.name:
        name = target.name
        predicates.append(lambda obj: bool(obj["metadata"]["name"] == name))
    return combine(*predicates)


def parse_resource_version(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        detail = f'strconv.ParseUint: parsing "{text}": invalid syntax'
        problem = field_errors.invalid("resourceVersion", text, detail)
        raise BadRequest(f"invalid resource version: {problem}")
    return int(text)


def _list_revision(registry: RestStorage, query: Query) -> int:
    """Revision of a list without continuation: the newest, unless an exact one is requested."""
    current = registry.store.revision
    match = query.get("resourceVersionMatch")
    text = query.get("resourceVersion")
    path = "resourceVersionMatch"
    if match not in ("", "Exact", "NotOlderThan"):
        raise invalid_options(
            "ListOptions", not_supported(path, match, ("Exact", "NotOlderThan", ""))
        )
    if match and not text:
        detail = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        raise invalid_options("ListOptions", forbidden(path, detail))
    if match == "Exact" and text == "0":
        detail = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        raise invalid_options("ListOptions", forbidden(path, detail))
    wanted = parse_resource_version(text) if text else 0
    if wanted > current:
        raise too_large_version(wanted, current)
    # Upstream: an unqualified resourceVersion together with a limit means exactly that revision.
    is_exact = match == "Exact" or (not match and wanted > 0 and bool(query.integer("limit")))
    return wanted if is_exact else current


def too_large_version(wanted: int, current: int) -> ServerError:
    return ServerError(
        f"Too large resource version: {wanted}, current: {current}",
        code=504,
        reason="Timeout",
        details={
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ]
        },
        retry_after_s=1,
    )


def _key(entry: Entry) -> tuple[str, str]:
    metadata = entry.obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def encode_continue(revision: int, last: tuple[str, str], begun_at: int) -> str:
    fields = {"v": _CONTINUE_VERSION, "rv": revision, "start": list(last), "at": begun_at}
    return base64.urlsafe_b64encode(encode(fields)).decode().rstrip("=")


def decode_continue(token: str) -> tuple[int, tuple[str, str], int]:
    """The list's revision, the last key so far, and when the list began."""
    try:
        value = decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, revision, (namespace, name) = value["v"], value["rv"], value["start"]
        begun_at = int(value["at"])
    except (
        binascii.Error,
        msgspec.DecodeError,
        UnicodeDecodeError,
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
    ):
        raise BadRequest(
            f"invalid continue token: continue key is not valid: {encode(token).decode()}"
        ) from None
    is_revision = type(revision) is int and (revision > 0 or revision == _AT_NEWEST)
    if version != _CONTINUE_VERSION or not is_revision:
        raise BadRequest("continue key is not valid: incorrect encoded version or resourceVersion")
    return revision, (str(namespace), str(name)), begun_at


def _continue_expired(last: tuple[str, str]) -> ContinueExpired:
    return ContinueExpired(
        "The provided continue parameter is too old to display a consistent list result."
        " You must start a new list without the continue parameter, or use the continue token of"
        " this response for the rest of the list as it is now.",
        encode_continue(_AT_NEWEST, last, 0),
    )


def _log_of(pod: JsonObject) -> bytes:
    """Simulated containers write no log; return a line that says so."""
    metadata = pod["metadata"]
    phase = (pod.get("status") or {}).get("phase", "Pending")
    return (
        f"pod {metadata['namespace']}/{metadata['name']} is simulated ({phase}); it writes no log\n"
    ).encode()
