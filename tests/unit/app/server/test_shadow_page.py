"""/debug/shadow: reports of shadows, with pods named only to those who may list them."""

from __future__ import annotations

import json

import pytest

from kubesched.app.server.authorization import Authorizer
from kubesched.app.server.requests import PageRequest
from kubesched.app.server.shadow_page import PATH, ShadowPage
from kubesched.app.server.users import MASTERS, User
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
    """Allows to list the pods of namespace `a`."""

    async def post_raw(self, path: str, body: bytes) -> bytes:
        wanted = json.loads(body)["spec"]["resourceAttributes"]
        return json.dumps({"status": {"allowed": wanted.get("namespace") == "a"}}).encode()


@pytest.fixture
def shadows():
    node = make_node("n").capacity(cpu="8", memory="8Gi", pods=9).taint("k", "v", "NoSchedule")
    with Cluster([node.build()], CONFIG) as cluster:
        for namespace in ("a", "b"):
            cluster.add(make_pod("p", namespace).cpu("1").build())
        cluster.settle()
        yield cluster.assembly.shadows


async def answer(shadows, clock, user, method="GET"):
    async def sender():
        return user

    page = ShadowPage(lambda: shadows, Authorizer(Reviews(), clock=clock))
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
