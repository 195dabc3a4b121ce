"""/debug/shadow: what shadow profiles would have decided, as `kubesched shadow report` reads it.

Pods and reasons are shown only for namespaces in which the client may list pods (one
SubjectAccessReview per namespace, cached).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from kubesched.app.server.authorization import Authorizer, ReviewFailed
from kubesched.app.server.requests import PageRequest
from kubesched.app.server.responses import error_text, json_body
from kubesched.app.server.users import User
from kubesched.base.http_server.messages import Response
from kubesched.scheduler.shadows import Shadows

PATH: Final = "/debug/shadow"
MAX_NAMESPACES: Final = 64
"""Reviews per request; pods of further namespaces are shown without names."""


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
            found = [made for report in reports for made in report["differences"]]
            names = [made["namespace"] for made in found]
            shown = await readable(self.authorizer, await request.sender(), names)
            for made in found:
                if made["namespace"] not in shown:
                    made |= {"namespace": "", "pod": "", "reason": ""}
        except ReviewFailed as error:
            return error_text(f"permissions cannot be checked: {error}", 500)
        return json_body({"shadows": reports}, indent=2 if request.pretty else None)


async def readable(authorizer: Authorizer, user: User, namespaces: Iterable[str]) -> set[str]:
    """Those of the namespaces in which a client may list pods: all, or checked one by one."""
    if (await authorizer.may_list_pods(user, "")).allowed:
        return set(namespaces)
    asked = list(dict.fromkeys(namespaces))[:MAX_NAMESPACES]
    return {name for name in asked if (await authorizer.may_list_pods(user, name)).allowed}
