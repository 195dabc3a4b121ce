"""Health pages: bodies as kube-scheduler writes them, reasons only for those who may see them."""

import pytest

from kubesched.app.server.health import PING, Check, HealthMetrics, HealthPages, waits_for
from kubesched.base.metrics import MetricsRegistry

BROKEN = Check("sched-handler-sync", lambda: "handlers are not fully synchronized")
FINE = Check("leaderElection", lambda: None)


def answer(path, *, verbose=False, excluded=(), readyz=(FINE, PING), metrics=None):
    pages = HealthPages(readyz=readyz, metrics=metrics)
    found = pages.answer(path, verbose=verbose, excluded=excluded)
    return found.status, found.body.decode()


def test_everything_fine_is_ok():
    assert answer("/readyz") == (200, "ok")


def test_verbose_lists_the_checks():
    expected = "[+]leaderElection ok\n[+]ping ok\nreadyz check passed\n"
    assert answer("/readyz", verbose=True) == (200, expected)


def test_a_failure_names_the_check_but_not_the_reason():
    expected = (
        "[+]leaderElection ok\n[-]sched-handler-sync failed: reason withheld\nreadyz check failed\n"
    )
    assert answer("/readyz", readyz=(FINE, BROKEN)) == (500, expected)


def test_an_excluded_check_does_not_count():
    expected = "[+]leaderElection ok\n[+]sched-handler-sync excluded: ok\nreadyz check passed\n"
    got = answer("/readyz", verbose=True, excluded={"sched-handler-sync"}, readyz=(FINE, BROKEN))
    assert got == (200, expected)


def test_excluding_what_does_not_exist_is_warned_about():
    status, body = answer("/readyz", verbose=True, excluded={"nope"})
    assert status == 200
    assert 'warn: some health checks cannot be excluded: no matches for "nope"\n' in body


def test_a_single_check_gives_its_reason():
    assert answer("/readyz/leaderElection") == (200, "ok")
    assert answer("/readyz/sched-handler-sync", readyz=(FINE, BROKEN)) == (
        500,
        "internal server error: handlers are not fully synchronized\n",
    )


@pytest.mark.parametrize("path", ["/readyz/nope", "/readyz/", "/healthz/leaderElection", "/nope"])
def test_anything_else_is_not_found(path):
    assert answer(path) == (404, "404 page not found\n")


def test_a_check_can_wait_for_something():
    done = []
    check = waits_for("sync", lambda: bool(done), "not yet")
    assert check.problem() == "not yet"
    done.append(1)
    assert check.problem() is None


def test_results_are_counted_for_service_levels():
    registry = MetricsRegistry()
    metrics = HealthMetrics(registry)
    answer("/readyz", readyz=(FINE, BROKEN), metrics=metrics)
    page = registry.text()
    assert 'kubernetes_healthcheck{name="sched-handler-sync",type="readyz"} 0' in page
    assert 'kubernetes_healthcheck{name="leaderElection",type="readyz"} 1' in page
    assert (
        'kubernetes_healthchecks_total{name="sched-handler-sync",status="error",type="readyz"} 1'
        in page
    )
