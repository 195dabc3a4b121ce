"""Responses of the serving port, with upstream's wording and layout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from kubesched.base.http_server.messages import Response

JSON: Final = "application/json"
NO_SNIFF: Final = {"X-Content-Type-Options": "nosniff"}


def text(body: str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(status=status, body=body.encode(), headers=headers)


def error_text(body: str, status: int) -> Response:
    """A short error, as Go's `http.Error` writes it."""
    return text(f"{body}\n", status=status, headers=NO_SNIFF)


def json_body(value: object, *, indent: int | None = None) -> Response:
    separators = (",", ":") if indent is None else None
    body = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    return Response(body=body.encode(), content_type=JSON, headers=NO_SNIFF)


def failure(
    code: int,
    reason: str,
    message: str,
    *,
    pretty: bool,
    details: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A Kubernetes `Status`; `pretty` indents it for people."""
    status: dict[str, object] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
    }
    if details is not None:
        status["details"] = details
    status["code"] = code
    body = rendered(status, pretty=pretty).encode()
    return Response(status=code, body=body, content_type=JSON, headers=headers)


def rendered(document: object, *, pretty: bool) -> str:
    """JSON as upstream's API machinery writes it: compact, or indented for people."""
    if pretty:
        return json.dumps(document, ensure_ascii=False, indent=2)
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"


def unauthorized(*, pretty: bool) -> Response:
    return failure(401, "Unauthorized", "Unauthorized", pretty=pretty)


def forbidden(user: str, verb: str, path: str, why: str = "", *, pretty: bool) -> Response:
    message = f'forbidden: User "{user}" cannot {verb} path "{path}"'
    return failure(
        403,
        "Forbidden",
        f"{message}: {why}" if why else message,
        pretty=pretty,
        details={},
        headers=NO_SNIFF,
    )


def not_acceptable(*accepted: str, pretty: bool) -> Response:
    listed = ", ".join(accepted)
    message = f"only the following media types are accepted: {listed}"
    return failure(406, "NotAcceptable", message, pretty=pretty)


NOT_FOUND: Final = error_text("404 page not found", 404)
