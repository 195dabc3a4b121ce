"""A simulated HTTP extender with its own rule, and late, missing or malformed answers.

Its rule: pods of one application only go to nodes with fast disks. `liveness` queries it without
faults.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

from kubesched.base.errors import (
    ApiError,
    ConnectFailed,
    DeadlineExceeded,
    KubeschedError,
    StreamEnded,
)
from kubesched.client.exchange import BufferedResponse
from kubesched.client.transport import Request, Response
from kubesched.insight.state.virtual_loop import OWNER
from kubesched.lab.simulation.cluster import SimulatedCluster
from kubesched.lab.simulation.trace import Trace
from kubesched.playground.apimachinery.objects import JsonObject

TIMEOUT_S: Final = 2.0
VERBS: Final = ("filter", "prioritize", "preempt", "bind")
NONSENSE: Final = (
    b"",
    b"\xff\xfe not text",
    b"<html>502 Bad Gateway</html>",
    b"null",
    b"42",
    b'"yes"',
    b"[[]]",
    b"{}",
    b'{"NodeNames": 7, "Nodes": "all"}',
    b'{"NodeNames": [null, 3], "FailedNodes": []}',
    b'{"Nodes": {"items": [{"metadata": {"name": 5}}, 6]}}',
    b'{"NodeNames": ["no-such-node"], '
    b'"Nodes": {"items": [{"metadata": {"name": "no-such-node"}}]}}',
    b'{"FailedNodes": {"n1": {"why": 1}}, "FailedAndUnresolvableNodes": 3}',
    b'[{"Host": "n1", "Score": 1e99}, {"Host": 7}]',
    b'[{"Host": "n1", "Score": 123456789012345678901234567890}]',
    b'[{"Host": "n1", "Score": -9223372036854775808}, '
    b'{"Host": "n1", "Score": 9223372036854775807}]',
    b'{"NodeNameToMetaVictims": {"no-such-node": {"Pods": [{"UID": "x"}]}}}',
    b'{"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": 3}], "NumPDBViolations": "many"}}}',
    b'{"NodeNameToMetaVictims": {"n1": {"Pods": {}, "NumPDBViolations": [1]}}}',
    b"[" * 100_000,
)


def config(traits: tuple[str, ...]) -> str:
    """The extenders section of a configuration file."""
    lines = [
        "extenders:",
        "- urlPrefix: http://extender.example.com/v1",
        f"  httpTimeout: {TIMEOUT_S:g}s",
        "  weight: 2",
        *(f"  {verb}Verb: {verb}" for verb in _verbs(traits)),
        f"  ignorable: {json.dumps('ignorable' in traits)}",
        f"  nodeCacheCapable: {json.dumps('names' in traits)}",
    ]
    return "\n".join(lines) + "\n"


def _verbs(traits: tuple[str, ...]) -> list[str]:
    return [verb for verb in VERBS if verb in traits] or ["filter"]


def _answer(status: int, body: bytes) -> Response:
    return BufferedResponse(status, [(b"content-type", b"application/json")], body)


class Opinion:
    """The extender's rule."""

    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random

    def on(self, verb: str, question: JsonObject, *, is_moody: bool = False) -> Any:  # noqa: ANN401  # JSON of any form
        if verb == "filter":
            return self._filter(question, is_moody)
        if verb == "prioritize":
            return [
                {"Host": name, "Score": self._random.randint(0, 10)}
                for name in _names(question)
                if self._random.random() < 0.9
            ]
        assert verb == "preempt", "bindings are no matter of opinion"
        return self._preempt(question)

    def _filter(self, question: JsonObject, is_moody: bool) -> JsonObject:
        """Occasionally also rejects nodes that satisfy the rule."""
        pod, kept, failed, unresolvable = question["Pod"], [], {}, {}
        for name in _names(question):
            node = self._cluster.find_node(name)
            why = "gone" if node is None else _objection(pod, node)
            if why is not None:
                unresolvable[name] = why
            elif is_moody and self._random.random() < 0.7:
                failed[name] = "not today"
            else:
                kept.append(name)
        answer: JsonObject = {"FailedNodes": failed, "FailedAndUnresolvableNodes": unresolvable}
        if question.get("NodeNames") is not None:
            return answer | {"NodeNames": kept}
        items = [node for node in question["Nodes"]["items"] if node["metadata"]["name"] in kept]
        return answer | {"Nodes": {"items": items}}

    def _preempt(self, question: JsonObject) -> JsonObject:
        kept = {}
        given = question.get("NodeNameToMetaVictims") or question.get("NodeNameToVictims") or {}
        for name, victims in given.items():
            node = self._cluster.find_node(name)
            if node is not None and _objection(question["Pod"], node) is None:
                uids = (it.get("UID") or it["metadata"]["uid"] for it in victims["Pods"])
                kept[name] = {**victims, "Pods": [{"UID": uid} for uid in uids]}
        return {"NodeNameToMetaVictims": kept}


class CalmExtender:
    """The same extender without faults: answers at once, and does not bind."""

    def __init__(self, opinion: Opinion, bind: Callable[[str, str, str], Awaitable[None]]) -> None:
        """`bind` is called with a pod's namespace and name, and its node's name."""
        self._opinion = opinion
        self._bind = bind

    async def request(self, request: Request) -> Response:
        verb, question = request.target.rpartition("/")[2], json.loads(request.body)
        if verb == "bind":
            await self._bind(question["PodNamespace"], question["PodName"], question["Node"])
            return _answer(200, b"{}")
        return _answer(200, json.dumps(self._opinion.on(verb, question)).encode())

    async def aclose(self) -> None:
        """No-op."""


Said = list[tuple[str, object, Response | Exception]]
"""What an extender was asked in an attempt (verb and subject), and what it said."""


class SimulatedExtender:
    """The transport of all schedulers to the extender."""

    def __init__(
        self, cluster: SimulatedCluster, random: Random, trace: Trace, trouble: float
    ) -> None:
        self._cluster = cluster
        self._opinion = Opinion(cluster, random)
        self._random = random
        self._trace = trace
        self.trouble = trouble
        self.next_mood: dict[str, str] = {}
        """Verb -> fate of its next request, regardless of the fault rate."""
        self._said: dict[str, Said] = {}

    def listen(self, process: str) -> Said:
        """A list to which all answers to this process are added from now on."""
        said = self._said[process] = []
        return said

    async def request(self, request: Request) -> Response:
        said = self._said.get(OWNER.get())
        verb, about = subject(request)
        try:
            answer: Response | Exception = await self._respond(verb, request)
        except KubeschedError as error:
            answer = error
        if said is not None and verb != "bind":
            said.append((verb, about, answer))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _respond(self, verb: str, request: Request) -> Response:
        how = self._mood(verb)
        self._trace.add("extender", f"{verb} {len(request.body)} {how}")
        if how != "fine":
            self._trace.census.tally("extenders", how)
        if how == "dead":
            await asyncio.sleep(self._random.uniform(0.0005, 0.5))
            raise ConnectFailed("connection refused")
        await asyncio.sleep(self._random.uniform(0.0005, 0.02))
        if how == "nonsense" and verb != "bind":
            return _answer(200, self._random.choice(NONSENSE))
        if how == "refuses":
            return _answer(self._random.choice((204, 301, 400, 404, 429, 500, 503)), b"no")
        if how == "errs":
            return _answer(200, b'{"Error": "simulated error", "error": "simulated error"}')
        answer = json.dumps(self._answer(verb, json.loads(request.body), how)).encode()
        if how == "silent":
            await asyncio.sleep(request.deadline_s)
            raise DeadlineExceeded(f"{request.method} {request.target}: no answer")
        if how == "breaks":
            raise StreamEnded("connection reset by peer")
        if how == "slow":
            await asyncio.sleep(self._random.uniform(0.1, request.deadline_s))
        return _answer(200, answer)

    async def aclose(self) -> None:
        """No-op."""

    def _mood(self, verb: str) -> str:
        if verb in self.next_mood:
            return self.next_mood.pop(verb)
        if self.trouble <= 0 or self._random.random() >= self.trouble:
            return "fine"
        ways = ["dead", "nonsense", "refuses", "errs", "silent", "breaks", "slow"]
        if verb == "filter":
            ways.append("moody")
        return self._random.choice(ways)

    def _answer(self, verb: str, question: JsonObject, how: str) -> Any:  # noqa: ANN401  # JSON of any form
        if verb == "bind":
            return self._bind(question)
        return self._opinion.on(verb, question, is_moody=how == "moody")

    def _bind(self, question: JsonObject) -> JsonObject:
        try:
            self._cluster.api.bind(
                question["PodNamespace"],
                question["PodName"],
                question["Node"],
                uid=question["PodUID"],
            )
        except ApiError as error:
            return {"Error": str(error)}
        return {}


def _objection(pod: JsonObject, node: JsonObject) -> str | None:
    """The extender's rule."""
    labels, of_node = (obj["metadata"].get("labels") or {} for obj in (pod, node))
    if labels.get("app") == "db" and of_node.get("disk") != "ssd":
        return "a database wants a fast disk"
    return None


def subject(request: Request) -> tuple[str, object]:
    """The verb of a question, and what it is about: a pod and node names, or victims by node."""
    verb, question = request.target.rpartition("/")[2], json.loads(request.body)
    if verb == "bind":
        return verb, question["PodUID"]
    given = question.get("NodeNameToMetaVictims") or question.get("NodeNameToVictims")
    if given is None:
        return verb, (question["Pod"]["metadata"]["uid"], sorted(_names(question)))
    return verb, {
        name: sorted(victim.get("UID") or victim["metadata"]["uid"] for victim in victims["Pods"])
        for name, victims in given.items()
    }


def _names(question: JsonObject) -> list[str]:
    names: list[str] | None = question.get("NodeNames")
    if names is not None:
        return names
    return [node["metadata"]["name"] for node in question["Nodes"]["items"]]
