"""Health checks and their pages: /healthz, /livez and /readyz, each with subpages per check.

A check returns a problem, or None. The summary pages need no authorization and therefore name the
failing check but not the reason; the page of a single check gives the reason and needs
authorization.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from kubesched.app.server.responses import NO_SNIFF, NOT_FOUND, error_text, text
from kubesched.base.http_server.messages import Response
from kubesched.base.logs import get_logger, quoted
from kubesched.base.metrics.registry import MetricsRegistry

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Check:
    """One named health check."""

    name: str
    problem: Callable[[], str | None]


PING = Check("ping", lambda: None)


def waits_for(name: str, is_done: Callable[[], bool], problem: str) -> Check:
    """A check that fails until `is_done` is true."""
    return Check(name, lambda: None if is_done() else problem)


@dataclass(slots=True)
class HealthPages:
    """The three pages and their checks."""

    healthz: Sequence[Check] = (PING,)
    livez: Sequence[Check] = (PING,)
    readyz: Sequence[Check] = (PING,)
    metrics: HealthMetrics | None = None
    _pages: dict[str, Sequence[Check]] = field(init=False)

    def __post_init__(self) -> None:
        self._pages = {"healthz": self.healthz, "livez": self.livez, "readyz": self.readyz}

    def knows(self, path: str) -> bool:
        return path[1:].partition("/")[0] in self._pages

    def answer(self, path: str, *, verbose: bool, excluded: Collection[str]) -> Response:
        """The page at `path`, or the subpage of one check."""
        page, slash, name = path[1:].partition("/")
        checks = self._pages.get(page)
        if checks is None:
            return NOT_FOUND
        if not slash:
            return self._summary(page, checks, verbose=verbose, excluded=excluded)
        check = next((check for check in checks if check.name == name), None)
        if check is None:
            return NOT_FOUND
        problem = check.problem()  # Upstream: requests for a single check are not counted.
        if problem is not None:
            return error_text(f"internal server error: {problem}", 500)
        return text("ok")

    def _summary(
        self, page: str, checks: Sequence[Check], *, verbose: bool, excluded: Collection[str]
    ) -> Response:
        lines: list[str] = []
        failed: list[str] = []
        for check in checks:
            if check.name in excluded:
                lines.append(f"[+]{check.name} excluded: ok\n")
                continue
            problem = check.problem()
            if self.metrics is not None:
                self.metrics.note(page, check.name, is_ok=problem is None)
            if problem is None:
                lines.append(f"[+]{check.name} ok\n")
                continue
            # The page is open to anonymous clients; the reason may reveal details of the cluster.
            lines.append(f"[-]{check.name} failed: reason withheld\n")
            failed.append(f"{check.name}: {problem}")
        unknown = sorted(set(excluded) - {check.name for check in checks})
        if unknown:
            names = ",".join(quoted(name) for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}\n")
        if failed:
            log.info("Health check failed", v=2, check=page, failed=failed)
            return error_text(f"{''.join(lines)}{page} check failed", 500)
        body = f"{''.join(lines)}{page} check passed\n" if verbose else "ok"
        return text(body, headers=NO_SNIFF)


class HealthMetrics:
    """Check results as service level indicators: `/metrics/slis`."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._state = registry.gauge("kubernetes_healthcheck")
        self._total = registry.counter("kubernetes_healthchecks_total")

    def note(self, page: str, check: str, *, is_ok: bool) -> None:
        self._state.labels(check, page).set(1.0 if is_ok else 0.0)
        self._total.labels(check, "success" if is_ok else "error", page).inc()
