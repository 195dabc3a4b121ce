"""Static files: read and compressed once, served with an entity tag."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from kubesched.base.http_server.messages import Response

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file."""

    content_type: str
    body: bytes
    packed: bytes
    tag: str


@cache
def assets() -> Mapping[str, Asset]:
    """Assets by file name."""
    by_name = {}
    static = files("kubesched.insight.page").joinpath("static")
    for file in static.iterdir():
        suffix = file.name[file.name.rfind(".") :]
        if suffix in _TYPES:
            body = file.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
            packed = gzip.compress(body, 9, mtime=0)
            by_name[file.name] = Asset(_TYPES[suffix], body, packed, tag)
    return by_name


def serve(name: str, headers: Mapping[str, str]) -> Response | None:
    """The file, a 304 if the browser has it, or None if it does not exist."""
    asset = assets().get(name)
    if asset is None:
        return None
    fields = {"ETag": asset.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if headers.get("if-none-match") == asset.tag:
        return Response(304, content_type=asset.content_type, headers=fields)
    if "gzip" in headers.get("accept-encoding", ""):
        fields["Content-Encoding"] = "gzip"
        return Response(body=asset.packed, content_type=asset.content_type, headers=fields)
    return Response(body=asset.body, content_type=asset.content_type, headers=fields)
