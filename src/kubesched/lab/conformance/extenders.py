"""Extenders of recorded sequences: each answer is a pure function of the question.

A replay gets the answers that kube-scheduler got, because only names matter: an extender hashes its
salt, the pod's name and the node's name. It is consistent: it never has pods evicted for a node
that it would then reject. Sequences that are generated have no extenders.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kubesched.lab.conformance.sequences import ExtenderPolicy, Json


class Cluster(msgspec.Struct, frozen=True):
    """The cluster data that an extender has."""

    find_pod: Callable[[str, str], Json | None]
    """Keyed by namespace and name."""
    key_of: Callable[[str], str]
    """Pod UID -> namespace and name."""


class Reply(msgspec.Struct, frozen=True):
    """An extender's answer."""

    body: Any
    status: int = 200
    binds: bool = False
    """Send the answer only after the pod is bound."""


def reply(policy: ExtenderPolicy, verb: str, question: Json, cluster: Cluster) -> Reply:
    """The answer to a scheduler's request."""
    if verb == "filter":
        return _filter(policy, question)
    if verb == "prioritize":
        return _prioritize(policy, question)
    if verb == "preempt":
        return _preempt(policy, question, cluster)
    return _bind(policy, question, cluster)


def question_in_words(policy: ExtenderPolicy, verb: str, question: Json, cluster: Cluster) -> str:
    """The question in one line, for comparison."""
    if verb == "preempt":
        victims = _victims(question, cluster)
        told = [
            f"{node}({victim_list['violations']})={'+'.join(victim_list['keys'])}"
            for node, victim_list in sorted(victims.items())
        ]
    elif verb == "bind":
        told = [question["Node"]]
    else:
        told = _names(question)
    return " ".join((policy.name, verb, *told))


def subject(verb: str, question: Json) -> str:
    """The pod of a question, as namespace/name."""
    if verb == "bind":
        return f"{question['PodNamespace']}/{question['PodName']}"
    metadata = question["Pod"]["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"


# -- verbs -----------------------------------------------------------------------------------------


def _filter(policy: ExtenderPolicy, question: Json) -> Reply:
    pod = question["Pod"]
    name = pod["metadata"]["name"]
    if _is_meek(pod) and _lot(policy, "fails", name) < policy.fails:
        if policy.fails_with_status:
            return Reply({}, status=500)
        return Reply({"Error": f"{policy.name} does not like {name}"})
    kept: list[str] = []
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    for node in _names(question):
        if not _objects(policy, pod, node):
            kept.append(node)
        elif _lot(policy, "for good", name, node) < 40:
            unresolvable[node] = f"{policy.name} will never have it"
        else:
            failed[node] = f"{policy.name} does not want it"
    if policy.reverses:
        kept.reverse()
    answer: Json = {"FailedNodes": failed, "FailedAndUnresolvableNodes": unresolvable}
    if question.get("NodeNames") is not None:
        return Reply(answer | {"NodeNames": kept})
    by_name = {item["metadata"]["name"]: item for item in question["Nodes"]["items"] or ()}
    return Reply(answer | {"Nodes": {"items": [by_name[name] for name in kept]}})


def _prioritize(policy: ExtenderPolicy, question: Json) -> Reply:
    """Score nodes with 100 × a preference up to `favours`, plus a distinct rank if `ranks`."""
    name = question["Pod"]["metadata"]["name"]
    if _lot(policy, "no ranking", name) < policy.ranks_not:
        return Reply({}, status=503)
    nodes = sorted(_names(question), key=lambda node: _lot(policy, "rank", name, node, of=1 << 30))
    scores = []
    for rank, node in enumerate(nodes):
        favour = _lot(policy, "favour", name, node, of=policy.favours + 1)
        scores.append({"Host": node, "Score": 100 * favour + (rank if policy.ranks else 0)})
    if not policy.ranks:
        scores = scores[: len(scores) // 2 + 1]  # an extender may omit nodes
    return Reply(scores)


def _preempt(policy: ExtenderPolicy, question: Json, cluster: Cluster) -> Reply:
    pod, kept = question["Pod"], {}
    for node, candidate in _victims(question, cluster).items():
        lot = _lot(policy, "preempt", pod["metadata"]["name"], node)
        if _objects(policy, pod, node) or lot < policy.keeps:
            continue
        violations = candidate["violations"] + (1 if lot % 3 == 0 else 0)
        uids = [{"UID": uid} for uid in candidate["uids"]]
        kept[node] = {"Pods": uids, "NumPDBViolations": violations}
    return Reply({"NodeNameToMetaVictims": kept})


def _bind(policy: ExtenderPolicy, question: Json, cluster: Cluster) -> Reply:
    name = question["PodName"]
    pod = cluster.find_pod(question["PodNamespace"], name)
    if pod is not None and _is_meek(pod) and _lot(policy, "bind", name) < policy.unbound:
        return Reply({"Error": f"{policy.name} does not bind {name}"})
    return Reply({}, binds=True)


# -- opinions --------------------------------------------------------------------------------------


def _objects(policy: ExtenderPolicy, pod: Json, node: str) -> bool:
    """Whether the pod is rejected there. Nodes with victims pass without a preempt verb."""
    if not policy.chooses_victims and not _is_meek(pod):
        return False
    return _lot(policy, "filter", pod["metadata"]["name"], node) < policy.rejects


def _is_meek(pod: Json) -> bool:
    """Whether the pod never preempts.

    A preemptor must not be rejected for good once its victims are gone: it would retry forever.
    """
    spec = pod["spec"]
    return spec.get("preemptionPolicy") == "Never" or (spec.get("priority") or 0) < 0


def _lot(policy: ExtenderPolicy, *about: str, of: int = 100) -> int:
    text = "/".join((policy.name, policy.salt, *about))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % of


# -- questions -------------------------------------------------------------------------------------


def _names(question: Json) -> list[str]:
    names: Iterable[str] | None = question.get("NodeNames")
    if names is not None:
        return list(names)
    return [item["metadata"]["name"] for item in question["Nodes"]["items"] or ()]


def _victims(question: Json, cluster: Cluster) -> dict[str, Json]:
    """Victims by node, from either form of the question."""
    victims: dict[str, Json] = {}
    for node, entry in (question.get("NodeNameToMetaVictims") or {}).items():
        uids = [pod["UID"] for pod in entry["Pods"] or ()]
        victims[node] = {"uids": uids, "keys": [cluster.key_of(uid) for uid in uids]}
    for node, entry in (question.get("NodeNameToVictims") or {}).items():
        pods = [pod["metadata"] for pod in entry["Pods"] or ()]
        keys = [f"{meta['namespace']}/{meta['name']}" for meta in pods]
        victims[node] = {"uids": [meta["uid"] for meta in pods], "keys": keys}
    for field in ("NodeNameToMetaVictims", "NodeNameToVictims"):
        for node, entry in (question.get(field) or {}).items():
            victims[node]["violations"] = entry.get("NumPDBViolations") or 0
    return victims
