"""/debug/decisions: choosing, bad parameters, and names only for those who may list the pods."""

from __future__ import annotations

import json

import pytest

from kubesched.api.times import format_time
from kubesched.app.server.authorization import Authorizer
from kubesched.app.server.decisions_page import MAX_NAMESPACES, DecisionsPage
from kubesched.app.server.requests import PageRequest
from kubesched.app.server.users import ANONYMOUS, MASTERS, User
from kubesched.base.clock import ManualClock
from kubesched.base.errors import ServerError
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.scheduler.decisions import DecisionRing, Outcome
from kubesched.testing import make_pod

ADMIN = User(name="admin", groups=(MASTERS,))
ALICE = User(name="alice")
START = ManualClock().now()


class PodReviews:
    """Answers reviews about pods by namespace."""

    def __init__(self, *namespaces: str) -> None:
        self.namespaces = set(namespaces)
        self.asked: list[str] = []
        self.broken = False

    async def post_raw(self, path: str, body: bytes) -> bytes:
        if self.broken:
            raise ServerError("down")
        wanted = json.loads(body)["spec"]["resourceAttributes"]
        assert (wanted["verb"], wanted["resource"]) == ("list", "pods")
        namespace = wanted.get("namespace", "")
        self.asked.append(namespace)
        return json.dumps({"status": {"allowed": namespace in self.namespaces}}).encode()


def ring_of(*pods: tuple[str, str]) -> DecisionRing:
    ring = DecisionRing(size=1000)
    for at, (namespace, name) in enumerate(pods):
        info = QueuedPodInfo(PodInfo(make_pod(name, namespace).build()), 0.0)
        if at % 2 == 0:
            ring.add(
                info,
                "default-scheduler",
                START + at,
                0.001,
                Outcome.SCHEDULED,
                f"n{at}",
                2,
                3,
            )
            continue
        ring.add(
            info,
            "default-scheduler",
            START + at,
            0.001,
            Outcome.UNSCHEDULABLE,
            node="",
            evaluated=3,
            message='persistentvolumeclaim "secret" not found',
            reasons=["3 Insufficient cpu"],
            queue="backoff",
            backoff_s=2.5,
        )
    return ring


@pytest.fixture
def ask(clock):
    clock.advance(10.0)

    async def get(ring, path="/debug/decisions", user=ADMIN, reviews=None, method="GET", **query):
        page = DecisionsPage(lambda: ring, Authorizer(reviews, clock=clock), clock)

        async def sender():
            return user

        asked = {name: [value] for name, value in query.items()}
        request = PageRequest(method=method, path=path, query=asked, sender=sender)
        answer = await page(request)
        is_json = answer.status == 200
        return answer.status, json.loads(answer.body) if is_json else answer.body.decode()

    return get


RING = ring_of(("a", "x"), ("b", "y"), ("a", "z"))


async def test_the_newest_come_first(ask):
    status, body = await ask(RING)
    assert status == 200
    assert body["count"] == 3
    assert [each["pod"] for each in body["decisions"]] == ["z", "y", "x"]
    assert body["decisions"][1]["reasons"] == [{"nodes": 3, "reason": "Insufficient cpu"}]


@pytest.mark.parametrize(
    ("query", "pods"),
    [
        ({"pod": "y"}, ["y"]),
        ({"pod": "a/x"}, ["x"]),
        ({"pod": "b/x"}, []),
        ({"node": "n2"}, ["z"]),
        ({"outcome": "unschedulable"}, ["y"]),
        ({"since": "1"}, ["z", "y"]),
        ({"since": "-9s"}, ["z", "y"]),
        ({"since": format_time(START + 2)}, ["z"]),
        ({"limit": "1"}, ["z"]),
    ],
    ids=str,
)
async def test_parameters_choose(ask, query, pods):
    _, body = await ask(RING, **query)
    assert [each["pod"] for each in body["decisions"]] == pods


@pytest.mark.parametrize(
    "query",
    [
        {"outcome": "maybe"},
        {"since": "yesterday"},
        {"limit": "0"},
        {"limit": "x"},
        {"limit": "9" * 30},
    ],
    ids=str,
)
async def test_parameters_that_make_no_sense_are_named(ask, query):
    status, body = await ask(RING, **query)
    assert status == 400
    assert body.startswith(f"{next(iter(query))}: ")


async def test_one_decision(ask):
    status, body = await ask(RING, "/debug/decisions/2")
    assert (status, body["pod"], body["backoffSeconds"]) == (200, "y", 2.5)


@pytest.mark.parametrize("number", ["0", "4", "x", "-1", "", "²", "9" * 5000])
async def test_a_decision_that_is_not_there(ask, number):
    assert (await ask(RING, f"/debug/decisions/{number}"))[0] == 404


async def test_only_reading_is_allowed(ask):
    assert (await ask(RING, method="POST"))[0] == 405


async def test_names_and_messages_are_shown_for_readable_namespaces_only(ask):
    _, body = await ask(RING, user=ALICE, reviews=PodReviews("a"))
    z, y, x = body["decisions"]
    assert (z["pod"], z["readable"], x["pod"]) == ("z", True, "x")
    assert y["readable"] is False
    assert {"pod", "namespace", "uid", "message", "reasons"}.isdisjoint(y)
    assert "secret" not in json.dumps(y)


async def test_a_hidden_pod_cannot_be_found_by_asking_for_it(ask):
    _, body = await ask(RING, user=ALICE, reviews=PodReviews("a"), pod="b/y")
    assert body["decisions"] == []


async def test_a_user_who_may_list_all_pods_is_asked_about_once(ask):
    reviews = PodReviews("")
    _, body = await ask(RING, user=ALICE, reviews=reviews)
    assert all(each["readable"] for each in body["decisions"])
    assert reviews.asked == [""]


async def test_reviews_per_request_are_bounded(ask):
    names = [f"ns-{i}" for i in range(2 * MAX_NAMESPACES)]
    reviews = PodReviews(*names)
    ring = ring_of(*((name, "p") for name in names))
    _, body = await ask(ring, user=ALICE, reviews=reviews, limit="1000")
    assert len(body["decisions"]) == len(names)
    assert len(reviews.asked) == MAX_NAMESPACES + 1
    assert sum(each["readable"] for each in body["decisions"]) == MAX_NAMESPACES


async def test_without_delegation_nothing_has_a_name(ask):
    _, body = await ask(RING, user=ANONYMOUS)
    assert not any(each["readable"] for each in body["decisions"])


async def test_permissions_that_cannot_be_checked_are_an_error(ask):
    reviews = PodReviews("a")
    reviews.broken = True
    status, body = await ask(RING, user=ALICE, reviews=reviews)
    assert status == 500
    assert "down" in body


async def test_before_there_is_a_scheduler_there_are_no_decisions(ask):
    assert await ask(None) == (200, {"count": 0, "decisions": []})
    assert (await ask(None, "/debug/decisions/1"))[0] == 404
