"""/debug/decisions: the scheduler's last attempts.

    /debug/decisions            newest first; filtered by ?pod= ?node= ?outcome= ?since= ?limit=
    /debug/decisions/NUMBER     one of them

Every client allowed to get the path sees that attempts were made, and on which nodes pods were
placed. Pod names, and messages (which contain names of other objects), are shown only for
namespaces in which the client may list pods (one SubjectAccessReview per namespace, cached).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubesched.api.times import parse_time
from kubesched.app.server.authorization import Authorizer, ReviewFailed
from kubesched.app.server.requests import PageRequest
from kubesched.app.server.responses import NOT_FOUND, error_text, json_body
from kubesched.app.server.users import User
from kubesched.base.clock import Clock
from kubesched.base.http_server.messages import Response
from kubesched.scheduler.decisions import Decision, DecisionRing, Outcome

PATH: Final = "/debug/decisions"
DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1000
MAX_NAMESPACES: Final = 64
"""Reviews per request; pods of further namespaces are shown without names."""

_AGO: Final = re.compile(r"-(\d{1,7})([smh])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


class _BadQuery(Exception):
    """An invalid query parameter."""


@dataclass(frozen=True, slots=True)
class DecisionsPage:
    """Serves the list and single decisions."""

    ring: Callable[[], DecisionRing | None]
    """None before the scheduler exists."""
    authorizer: Authorizer
    clock: Clock

    async def __call__(self, request: PageRequest) -> Response:
        if request.method not in ("GET", "HEAD"):
            return error_text("only GET is allowed", 405)
        ring = self.ring()
        try:
            user = await request.sender()
            if request.path == PATH:
                return await self._list(ring, request, user)
            return await self._one(ring, request, user)
        except _BadQuery as error:
            return error_text(str(error), 400)
        except ReviewFailed as error:
            return error_text(f"permissions cannot be checked: {error}", 500)

    async def _list(self, ring: DecisionRing | None, request: PageRequest, user: User) -> Response:
        chosen = _Filter(request, self.clock.now())
        limit = _limit(request)
        readable = Readable(self.authorizer, user)
        shown: list[dict[str, Any]] = []
        for decision in ring.newest() if ring is not None else ():
            if not chosen.matches(decision):
                continue
            is_readable = await readable(decision.namespace)
            if chosen.pod and not is_readable:
                continue  # do not reveal that the pod exists
            shown.append(_as_json(decision, is_readable))
            if len(shown) >= limit:
                break
        body = {"count": 0 if ring is None else ring.count, "decisions": shown}
        return json_body(body, indent=2 if request.pretty else None)

    async def _one(self, ring: DecisionRing | None, request: PageRequest, user: User) -> Response:
        number = request.path.removeprefix(f"{PATH}/")
        decision = ring.get(int(number)) if ring is not None and _is_number(number) else None
        if decision is None:
            return NOT_FOUND
        readable = await Readable(self.authorizer, user)(decision.namespace)
        return json_body(_as_json(decision, readable), indent=2 if request.pretty else None)


class Readable:
    """Namespaces in which a client may list pods: all, or checked one by one."""

    def __init__(self, authorizer: Authorizer, user: User) -> None:
        self._authorizer = authorizer
        self._user = user
        self._known: dict[str, bool] = {}

    async def __call__(self, namespace: str) -> bool:
        if await self._may_list(""):
            return True
        if namespace not in self._known and len(self._known) > MAX_NAMESPACES:
            return False
        return await self._may_list(namespace)

    async def _may_list(self, namespace: str) -> bool:
        known = self._known.get(namespace)
        if known is None:
            decision = await self._authorizer.may_list_pods(self._user, namespace)
            known = self._known[namespace] = decision.allowed
        return known


class _Filter:
    """The parameters that filter decisions."""

    def __init__(self, request: PageRequest, now: float) -> None:
        self.pod = _single(request, "pod")
        self._node = _single(request, "node")
        self._outcome = _single(request, "outcome")
        outcomes = [outcome.value for outcome in Outcome]
        if self._outcome and self._outcome not in outcomes:
            raise _BadQuery(f"outcome: {self._outcome!r} is none of {', '.join(outcomes)}")
        self._since, self._after = _since(_single(request, "since"), now)

    def matches(self, decision: Decision) -> bool:
        return (
            self.pod in ("", decision.name, f"{decision.namespace}/{decision.name}", decision.uid)
            and self._node in ("", decision.node)
            and self._outcome in ("", decision.outcome.value)
            and decision.time >= self._since
            and decision.number > self._after
        )


def _single(request: PageRequest, name: str) -> str:
    values: Sequence[str] = request.query.get(name, ())
    if len(values) > 1:
        raise _BadQuery(f"{name}: given more than once")
    return values[0] if values else ""


def _since(text: str, now: float) -> tuple[float, int]:
    """(earliest time, last number to skip) of the parameter: RFC 3339, `-5m`, or a number."""
    if not text:
        return 0.0, 0
    ago = _AGO.fullmatch(text)
    if ago:
        return now - int(ago[1]) * _SECONDS[ago[2]], 0
    if _is_number(text):
        return 0.0, int(text)
    try:
        return parse_time(text), 0
    except ValueError:
        raise _BadQuery(
            f"since: {text!r} is neither a time (RFC 3339), nor a span such as -5m, nor a "
            "decision's number"
        ) from None


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 19


def _limit(request: PageRequest) -> int:
    text = _single(request, "limit")
    if not text:
        return DEFAULT_LIMIT
    if not text.isdecimal() or not 1 <= int(text[:9]) <= MAX_LIMIT:
        raise _BadQuery(f"limit: {text!r} is not a number from 1 to {MAX_LIMIT}")
    return int(text)


def _as_json(decision: Decision, readable: bool) -> dict[str, Any]:
    made: dict[str, Any] = {
        "number": decision.number,
        "time": round(decision.time, 6),
        "seconds": round(decision.seconds, 6),
        "profile": decision.profile,
        "attempt": decision.attempt,
        "outcome": decision.outcome.value,
        "node": decision.node,
        "feasibleNodes": decision.feasible_nodes,
        "evaluatedNodes": decision.evaluated_nodes,
        "plugins": sorted(decision.plugins),
        "queue": decision.queue,
        "backoffSeconds": round(decision.backoff_s, 3),
        "readable": readable,
    }
    if readable:
        made |= {
            "namespace": decision.namespace,
            "pod": decision.name,
            "uid": decision.uid,
            "message": decision.message,
            "reasons": list(_counted(decision.reasons)),
        }
    return made


def _counted(reasons: Sequence[str]) -> Iterator[dict[str, Any]]:
    for counted in reasons:
        count, _, reason = counted.partition(" ")
        yield {"nodes": int(count), "reason": reason}
