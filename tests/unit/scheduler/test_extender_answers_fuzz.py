"""Whatever an extender answers, the consequence is the documented one and nothing breaks.

One that may not be ignored fails the attempt with a clear message; one that may is passed over;
ranking never fails a pod. `KUBESCHED_FUZZ_EXAMPLES` sets how many examples each test draws.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.quantity import low_64_bits
from kubesched.base.errors import (
    ConnectFailed,
    CredentialsError,
    DeadlineExceeded,
    KubeschedError,
    NotFound,
    StreamEnded,
)
from kubesched.client.exchange import BufferedResponse
from kubesched.client.transport import ConnectionConfig, Request
from kubesched.config import types
from kubesched.framework.extenders import Victims
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.scheduler.http_extender import HttpExtender
from kubesched.testing import Cluster
from kubesched.testing.builders import make_node, make_pod

EXAMPLES = int(os.environ.get("KUBESCHED_FUZZ_EXAMPLES", "25"))
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: http://extender.example.com
  weight: 1
  nodeCacheCapable: {names}
  ignorable: {ignorable}
  {verb}Verb: {verb}
"""


def answered(status: int, body: bytes) -> BufferedResponse:
    return BufferedResponse(status, [], body)


class Talker:
    """A transport to an extender that always says the same."""

    def __init__(self, answer: BufferedResponse | Exception) -> None:
        self.answer = answer
        self.asked: list[Request] = []

    async def request(self, request: Request) -> BufferedResponse:
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def aclose(self) -> None:
        """Nothing is open."""


class AsKept:
    """The objects themselves; the pod is on `node_name` when it is looked at."""

    def __init__(self, node_name: str = "") -> None:
        self.node_name = node_name

    async def pod(self, pod: Pod) -> dict[str, Any]:
        if self.node_name == "gone":
            raise NotFound("no such pod")
        meta = pod.metadata
        spec = {"nodeName": self.node_name} if self.node_name else {}
        return {"metadata": {"name": meta.name, "uid": meta.uid}, "spec": spec}

    victim = pod

    async def nodes(self, nodes: Sequence[Node]) -> list[dict[str, Any]]:
        return [{"metadata": {"name": node.metadata.name}} for node in nodes]


NAMES = st.sampled_from(
    [
        *("NodeNames", "nodenames", "Nodes", "items", "metadata", "name", "FailedNodes", "Error"),
        *("FailedAndUnresolvableNodes", "Host", "Score", "NodeNameToMetaVictims", "Pods", "UID"),
        *("NumPDBViolations", "n1", "n2", "x"),
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["n1", "n2", "victim"])
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
SHAPED = st.one_of(
    st.builds(lambda value: {"NodeNames": value}, TREES),
    st.builds(lambda value: {"Nodes": {"items": value}}, TREES),
    st.builds(lambda key, value: {"NodeNames": ["n1"], key: value}, NAMES, TREES),
    st.lists(st.builds(lambda h, s: {"Host": h, "Score": s}, SCALARS, SCALARS), max_size=3),
    st.builds(lambda value: {"NodeNameToMetaVictims": {"n1": value}}, TREES),
    st.builds(
        lambda uids, count: {
            "NodeNameToMetaVictims": {"n1": {"Pods": uids, "NumPDBViolations": count}}
        },
        st.lists(st.builds(lambda uid: {"UID": uid}, SCALARS), max_size=2),
        SCALARS,
    ),
)
BODIES = (
    st.binary(max_size=60)
    | (TREES | SHAPED).map(lambda tree: json.dumps(tree).encode())
    | st.just(b"[" * 50_000)
)
ANSWERS = st.builds(answered, st.just(200) | st.integers(100, 599), BODIES) | st.sampled_from(
    [ConnectFailed("refused"), DeadlineExceeded("late"), StreamEnded("cut")]
)


def extender(
    talker: Talker, node_name: str = "", table: NodeTable | None = None, **settings: Any
) -> HttpExtender:
    verbs = {f"{verb}_verb": verb for verb in ("filter", "prioritize", "preempt", "bind")}
    config = types.Extender(
        url_prefix="http://extender.example.com", weight=3, **{**verbs, **settings}
    )
    return HttpExtender(config, AsKept(node_name), table or NodeTable(), talker)


async def test_nodes_are_sent_whole_unless_the_extender_keeps_its_own() -> None:
    nodes = [make_node("n1").build()]
    for is_cached, expected in (
        (True, {"Nodes": None, "NodeNames": ["n1"]}),
        (False, {"Nodes": {"metadata": {}, "items": [{"metadata": {"name": "n1"}}]}}),
    ):
        talker = Talker(answered(200, b"{}"))
        await extender(talker, node_cache_capable=is_cached).filter(make_pod("p").build(), nodes)
        body = json.loads(talker.asked[0].body or b"")
        del body["Pod"]
        assert body == {"NodeNames": None, **expected}


def test_an_extender_is_connected_to_by_its_url() -> None:
    made: list[ConnectionConfig] = []

    def connect(config: ConnectionConfig) -> Talker:
        made.append(config)
        return Talker(answered(200, b""))

    for url in ("http://extender.example.com/prefix", "https://extender.example.com:9443"):
        config = types.Extender(url_prefix=url)
        HttpExtender(config, AsKept(), NodeTable(), connect=connect)
    assert [(each.scheme, each.host, each.port) for each in made] == [
        ("http", "extender.example.com", 80),
        ("https", "extender.example.com", 9443),
    ]
    with pytest.raises(CredentialsError, match="is not an http or https URL"):
        HttpExtender(types.Extender(url_prefix="ftp://x"), AsKept(), NodeTable(), connect=connect)


@pytest.mark.parametrize(
    ("counted", "violations"), [({"NumPDBViolations": 1}, 1), ({}, 0)], ids=["counted", "left out"]
)
async def test_an_extender_s_victims_are_those_it_names(counted, violations) -> None:
    table = NodeTable()
    victims = [make_pod(name).uid(name).on("n1").build() for name in "ab"]
    table.set_node(make_node("n1").build())
    for victim in victims:
        table.add_pod(PodInfo(victim), "n1")
    left = {"n1": {"Pods": [{"UID": "b"}], **counted}}
    talker = Talker(answered(200, json.dumps({"NodeNameToMetaVictims": left}).encode()))
    asked = extender(talker, table=table, node_cache_capable=True)
    proposed = {"n1": Victims(tuple(victims), 2)}
    spared = await asked.process_preemption(make_pod("p").build(), proposed)
    assert spared == {"n1": Victims((victims[1],), violations)}


async def test_an_answer_that_was_read_is_closed() -> None:
    closed: list[bool] = []

    class Answer(BufferedResponse):
        def close(self) -> None:
            closed.append(True)

    await extender(Talker(Answer(200, [], b"[]"))).prioritize(make_pod("p").build(), [])
    assert closed == [True]


@FUZZ
@given(ANSWERS, st.booleans())
async def test_every_verb_answers_or_fails_with_a_reason(
    answer: BufferedResponse | Exception, names: bool
) -> None:
    asked = extender(Talker(answer), node_cache_capable=names)
    pod, nodes = make_pod("p").build(), [make_node(name).build() for name in ("n1", "n2")]
    victims = {"n1": Victims((make_pod("victim").build(),), 0)}
    for question in (
        asked.filter(pod, nodes),
        asked.prioritize(pod, nodes),
        asked.bind(pod, "n1"),
        asked.process_preemption(pod, victims),
    ):
        try:
            await question
        except KubeschedError as error:
            told = str(error)
        else:
            continue
        assert told


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
@FUZZ
@given(answer=ANSWERS, ignorable=st.booleans(), names=st.booleans())
def test_the_scheduler_outlives_every_answer(
    verb: str, answer: BufferedResponse | Exception, ignorable: bool, names: bool
) -> None:
    talker = Talker(answer)
    text = CONFIG.format(verb=verb, ignorable=json.dumps(ignorable), names=json.dumps(names))
    with Cluster(config=text, extender_transport=talker) as world:
        for name in ("n1", "n2"):
            world.add(make_node(name).capacity(cpu="1", memory="4Gi").build())
        for name in ("a", "b"):
            world.add(make_pod(name).cpu("1").build())
        world.settle()
        world.add(make_pod("high").cpu("1").priority(100).build())
        world.settle()
        world.advance(15.0)
        # Later the extender comes to its senses, and everything goes on.
        placed = len(world.client.bindings)
        if verb == "prioritize" or (ignorable and isinstance(answer, Exception)):
            assert placed >= 2, "an answer that does not matter kept pods from being placed"
        for _type, reason, _key, note in world.events:
            assert reason != "FailedScheduling" or note


@pytest.mark.parametrize(
    "unclear",
    [DeadlineExceeded("late"), StreamEnded("cut"), answered(502, b""), answered(200, b"<html>")],
    ids=["no answer", "half an answer", "a bad gateway", "something else"],
)
async def test_an_unclear_binding_is_settled_by_looking(
    unclear: BufferedResponse | Exception,
) -> None:
    pod = make_pod("p").build()
    await extender(Talker(unclear), node_name="n1").bind(pod, "n1")
    for elsewhere in ("", "n2", "gone"):
        with pytest.raises(KubeschedError):
            await extender(Talker(unclear), node_name=elsewhere).bind(pod, "n1")


async def test_a_clear_refusal_is_believed() -> None:
    refusal = answered(200, b'{"Error": "the rack is on fire"}')
    with pytest.raises(KubeschedError, match="the rack is on fire"):
        await extender(Talker(refusal), node_name="n1").bind(make_pod("p").build(), "n1")


def test_absurd_points_wrap_as_64_bits_do() -> None:
    assert low_64_bits(2**63) == -(2**63)
    assert low_64_bits(-(2**63) - 1) == 2**63 - 1
    assert low_64_bits(5) == 5
