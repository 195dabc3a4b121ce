"""/debug/shadow: reports of shadows, with pods named only to those who may list them."""

from __future__ import annotations

import json

import pytest

from kubesched.app.server.authorization import Authorizer
from kubesched.app.server.requests import PageRequest
from kubesched.app.server.shadow_page import MAX_NAMESPACES, PATH, ShadowPage, readable
from kubesched.app.server.users import MASTERS, User
from kubesched.base.errors import ServerError
from kubesched.testing import Cluster, make_node, make_pod

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: candidate
  shadow: {of: default-scheduler}
  plugins: {multiPoint: {disabled: [{name: TaintToleration}]}}
"""


class Reviews:
    """Allows to list the pods of these namespaces."""

    def __init__(self, *namespaces: str) -> None:
        self.namespaces = set(namespaces)
        self.asked: list[str] = []
        self.broken = False

    async def post_raw(self, path: str, body: bytes) -> bytes:
        if self.broken:
            raise ServerError("down")
        wanted = json.loads(body)["spec"]["resourceAttributes"]
        assert (wanted["verb"], wanted["resource"]) == ("list", "pods")
        self.asked.append(wanted.get("namespace", ""))
        return json.dumps({"status": {"allowed": self.asked[-1] in self.namespaces}}).encode()


@pytest.fixture
def shadows():
    node = make_node("n").capacity(cpu="8", memory="8Gi", pods=9).taint("k", "v", "NoSchedule")
    with Cluster([node.build()], CONFIG) as cluster:
        for namespace in ("a", "b"):
            cluster.add(make_pod("p", namespace).cpu("1").build())
        cluster.settle()
        yield cluster.assembly.shadows


async def answer(shadows, clock, user, method="GET", reviews=None):
    async def sender():
        return user

    page = ShadowPage(lambda: shadows, Authorizer(reviews or Reviews("a"), clock=clock))
    return await page(PageRequest(method=method, path=PATH, query={}, sender=sender))


async def test_differences_are_told_and_names_only_to_those_who_may_list(shadows, clock):
    whole = json.loads((await answer(shadows, clock, User(name="x", groups=(MASTERS,)))).body)
    (report,) = whole["shadows"]
    assert report["decisions"]["only_shadow"] == 2
    assert {made["namespace"] for made in report["differences"]} == {"a", "b"}
    assert {made["plugin"] for made in report["differences"]} == {"TaintToleration"}
    part = json.loads((await answer(shadows, clock, User(name="alice"))).body)
    shown = part["shadows"][0]["differences"]
    assert sorted((made["namespace"], made["pod"]) for made in shown) == [("", ""), ("a", "p")]


async def test_other_verbs_and_a_scheduler_that_is_not_there_yet(shadows, clock):
    assert (await answer(shadows, clock, User(name="x"), method="POST")).status == 405
    assert json.loads((await answer(None, clock, User(name="x"))).body) == {"shadows": []}


async def test_permissions_that_cannot_be_checked_are_an_error(shadows, clock):
    reviews = Reviews("a")
    reviews.broken = True
    answered = await answer(shadows, clock, User(name="alice"), reviews=reviews)
    assert answered.status == 500
    assert b"down" in answered.body


async def test_a_user_who_may_list_all_pods_is_asked_about_once(clock):
    reviews = Reviews("")
    shown = await readable(Authorizer(reviews, clock=clock), User(name="alice"), "abca")
    assert shown == {"a", "b", "c"}
    assert reviews.asked == [""]


async def test_reviews_per_request_are_bounded(clock):
    names = [f"ns-{i}" for i in range(2 * MAX_NAMESPACES)]
    reviews = Reviews(*names)
    shown = await readable(Authorizer(reviews, clock=clock), User(name="alice"), names)
    assert shown == set(names[:MAX_NAMESPACES])
    assert len(reviews.asked) == MAX_NAMESPACES + 1
