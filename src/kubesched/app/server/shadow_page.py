"""/debug/shadow: what shadow profiles would have decided, as `kubesched shadow report` reads it.

As on /debug/decisions, pods and reasons are shown only for namespaces in which the client may list
pods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kubesched.app.server.authorization import Authorizer, ReviewFailed
from kubesched.app.server.decisions_page import Readable
from kubesched.app.server.requests import PageRequest
from kubesched.app.server.responses import error_text, json_body
from kubesched.base.http_server.messages import Response
from kubesched.scheduler.shadows import Shadows

PATH: Final = "/debug/shadow"


@dataclass(frozen=True, slots=True)
class ShadowPage:
    """Serves the reports of all shadows."""

    shadows: Callable[[], Shadows | None]
    """None before the scheduler exists."""
    authorizer: Authorizer

    async def __call__(self, request: PageRequest) -> Response:
        if request.method not in ("GET", "HEAD"):
            return error_text("only GET is allowed", 405)
        shadows = self.shadows()
        reports: list[dict[str, Any]] = [] if shadows is None else shadows.report()
        try:
            readable = Readable(self.authorizer, await request.sender())
            for report in reports:
                for made in report["differences"]:
                    if not await readable(made["namespace"]):
                        made |= {"namespace": "", "pod": "", "reason": ""}
        except ReviewFailed as error:
            return error_text(f"permissions cannot be checked: {error}", 500)
        return json_body({"shadows": reports}, indent=2 if request.pretty else None)
