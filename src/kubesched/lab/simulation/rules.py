"""Whether a pod may go to a node: a simple second implementation over JSON, as a reference.

Covers what the workloads use: requests, number of pods, host ports, taints, cordons, node
selectors, required pod affinity and anti-affinity with `matchLabels`, required topology spread over
all nodes, claims and their volumes, and the rule of the simulated extender.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kubesched.lab.simulation.storage import SELECTED_NODE
from kubesched.lab.simulation.workloads import claim_names
from kubesched.playground.apimachinery.objects import JsonObject

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class State:
    """Nodes by name, and the pods on them."""

    nodes: Mapping[str, JsonObject]
    placed: tuple[tuple[JsonObject, str], ...]
    """(pod, node name); the node may no longer exist."""
    claims: Mapping[str, JsonObject] = field(default_factory=dict)
    volumes: Mapping[str, JsonObject] = field(default_factory=dict)
    attachable: Mapping[str, int] = field(default_factory=dict)
    """Attachable volumes of the driver per node; nodes that are not listed have no limit."""
    blurred_ports: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Host ports by node that two pods shared, by two schedulers or a restore, until one left.

    # Upstream: such a port counts as free although the other pod is still there.
    """

    def pods_on(self, node_name: str) -> list[JsonObject]:
        return [pod for pod, name in self.placed if name == node_name]

    def without(self, pods: Iterable[JsonObject]) -> State:
        """Remove pods and their host ports, even ports that remaining pods also have."""
        uids = {pod["metadata"]["uid"] for pod in pods}
        kept, blurred = [], dict(self.blurred_ports)
        for pod, name in self.placed:
            if pod["metadata"]["uid"] in uids:
                blurred[name] = blurred.get(name, frozenset()).union(_ports(pod))
            else:
                kept.append((pod, name))
        return replace(self, placed=tuple(kept), blurred_ports=blurred)

    def joined_by(self, pods: Iterable[tuple[JsonObject, str]]) -> State:
        """Add pods and their host ports."""
        pods, blurred = tuple(pods), dict(self.blurred_ports)
        for pod, name in pods:
            blurred[name] = blurred.get(name, frozenset()).difference(_ports(pod))
        return replace(self, placed=self.placed + pods, blurred_ports=blurred)


def overcommitment(
    node: JsonObject, pods: Iterable[JsonObject], resources: Iterable[str] = ("cpu", "memory")
) -> str | None:
    """The limit of the node that these pods exceed; None if they fit."""
    pods = list(pods)
    room = node["status"]["allocatable"]
    if len(pods) > int(room["pods"]):
        return f"{len(pods)} pods where {room['pods']} fit"
    for resource in resources:
        wanted, fit = sum(_amount(_request(pod, resource)) for pod in pods), _amount(room[resource])
        if wanted > fit:
            return f"{resource} requests of {wanted} where {fit} fit"
    return None


def roomier(one: JsonObject, other: JsonObject) -> JsonObject:
    """A node with the larger amount of each resource."""
    a, b = one["status"]["allocatable"], other["status"]["allocatable"]
    room = {name: max(a[name], b[name], key=_amount) for name in a}
    return {"status": {"allocatable": room}}


def less_demanding(one: JsonObject, other: JsonObject) -> JsonObject:
    """A pod with the smaller amount of each request."""
    requests = {
        name: min(_request(one, name), _request(other, name), key=_amount)
        for name in ("cpu", "memory")
    }
    return {"spec": {"containers": [{"resources": {"requests": requests}}]}}


def is_called_unschedulable(pod: JsonObject) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(
        condition["type"] == "PodScheduled" and condition["status"] == "False"
        for condition in conditions
    )


def _request(pod: JsonObject, resource: str) -> str:
    requests = pod["spec"]["containers"][0].get("resources", {}).get("requests", {})
    request: str = str(requests.get(resource, "0"))
    return request


def _requested(pod: JsonObject) -> list[str]:
    """Upstream: a resource that the pod does not request may be overcommitted, e.g. by a resize."""
    return [name for name in ("cpu", "memory") if _amount(_request(pod, name))]


def _amount(text: str) -> int:
    """Millicores or bytes, in the notations that the workloads use."""
    for suffix, factor in (("m", 1), ("Mi", 2**20), ("Gi", 2**30)):
        if text.endswith(suffix):
            return int(text.removesuffix(suffix)) * factor
    return int(text) * 1000


def objection(
    pod: JsonObject, node_name: str, state: State, *, asks_for_volumes: bool = True
) -> str | None:
    """Why the pod must not be placed there now; None if it may."""
    node = state.nodes.get(node_name)
    if node is None:
        return "there is no such node"
    return (
        overcommitment(node, [*state.pods_on(node_name), pod], _requested(pod))
        or _node_objection(pod, node)
        or _port_objection(pod, node_name, state)
        or _affinity_objection(pod, node, state)
        or _spread_objection(pod, node, state)
        or (_volume_objection(pod, node, state) if asks_for_volumes else None)
    )


def extender_objection(pod: JsonObject, node: JsonObject) -> str | None:
    """The rule of the simulated extender."""
    if _labels(pod).get("app") == "db" and _labels(node).get("disk") != "ssd":
        return "a database wants a fast disk"
    return None


def _node_objection(pod: JsonObject, node: JsonObject) -> str | None:
    labels = _labels(node)
    for key, value in (pod["spec"].get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            return f"the node selector wants {key}={value}"
    if not _tolerates_taints(pod, node):
        return "a taint is not tolerated"
    if node["spec"].get("unschedulable"):
        return "the node is cordoned"
    return None


def _tolerates_taints(pod: JsonObject, node: JsonObject) -> bool:
    tolerated = {toleration.get("key") for toleration in pod["spec"].get("tolerations") or ()}
    return all(
        taint["key"] in tolerated
        for taint in node["spec"].get("taints") or ()
        if taint["effect"] != "PreferNoSchedule"
    )


def _port_objection(pod: JsonObject, node_name: str, state: State) -> str | None:
    taken = {port for other in state.pods_on(node_name) for port in _ports(other)}
    taken -= state.blurred_ports.get(node_name, frozenset())
    clash = sorted(port for port in _ports(pod) if port in taken)
    return f"host port {clash[0]} is taken" if clash else None


def _ports(pod: JsonObject) -> list[int]:
    ports = pod["spec"]["containers"][0].get("ports") or ()
    return [port["hostPort"] for port in ports if port.get("hostPort")]


def _affinity_objection(pod: JsonObject, node: JsonObject, state: State) -> str | None:
    for term in _terms(pod, "podAntiAffinity"):
        if _matching_in_domain(term, node, state):
            return f"anti-affinity of the pod over {term['topologyKey']}"
    for other, name in state.placed:
        there = state.nodes.get(name)
        for term in _terms(other, "podAntiAffinity"):
            key = term["topologyKey"]
            if _selects(term, pod) and there is not None and _shares(key, there, node):
                return f"anti-affinity of {other['metadata']['name']} over {key}"
    terms = _terms(pod, "podAffinity")
    if terms and not all(_matching_in_domain(term, node, state) for term in terms):
        is_first = not any(
            _selects(term, other)
            for term in terms
            for other, name in state.placed
            if name in state.nodes and term["topologyKey"] in _labels(state.nodes[name])
        )
        if not (is_first and all(_selects(term, pod) for term in terms)):
            return "affinity of the pod"
    return None


def _matching_in_domain(term: JsonObject, node: JsonObject, state: State) -> bool:
    return any(
        _selects(term, other) and _shares(term["topologyKey"], state.nodes[name], node)
        for other, name in state.placed
        if name in state.nodes
    )


def _spread_objection(pod: JsonObject, node: JsonObject, state: State) -> str | None:
    for constraint in pod["spec"].get("topologySpreadConstraints") or ():
        if constraint["whenUnsatisfiable"] != "DoNotSchedule":
            continue
        key = constraint["topologyKey"]
        counts: Counter[str] = Counter()
        for candidate in state.nodes.values():
            if key in _labels(candidate) and _node_objection_of_selector(pod, candidate) is None:
                counts[_labels(candidate)[key]] += 0
        for other, name in state.placed:
            there = state.nodes.get(name)
            if there is None or other["metadata"].get("deletionTimestamp"):
                continue
            domain = _labels(there).get(key, "")
            if domain in counts and _node_objection_of_selector(pod, there) is None:
                counts[domain] += _selects(constraint, other)
        domain = _labels(node).get(key, "")
        least = min(counts.values(), default=0)
        skew = counts[domain] + _selects(constraint, pod) - least
        if skew > constraint["maxSkew"]:
            return f"skew of {skew} over {key}"
    return None


def _node_objection_of_selector(pod: JsonObject, node: JsonObject) -> str | None:
    labels = _labels(node)
    wanted = pod["spec"].get("nodeSelector") or {}
    return next((key for key, value in wanted.items() if labels.get(key) != value), None)


def _terms(pod: JsonObject, kind: str) -> list[JsonObject]:
    affinity = pod["spec"].get("affinity") or {}
    terms: list[JsonObject] = (affinity.get(kind) or {}).get(_REQUIRED) or []
    return terms


def _selects(term: JsonObject, pod: JsonObject) -> bool:
    labels = _labels(pod)
    wanted = term["labelSelector"]["matchLabels"]
    return all(labels.get(key) == value for key, value in wanted.items())


def _shares(key: str, one: JsonObject, other: JsonObject) -> bool:
    value = _labels(one).get(key)
    return value is not None and value == _labels(other).get(key)


def _labels(obj: JsonObject) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


# -- volumes ---------------------------------------------------------------------------------------

_BOUND = "pv.kubernetes.io/bind-completed"


def is_bound(claim: JsonObject) -> bool:
    annotations = claim["metadata"].get("annotations") or {}
    return bool(claim["spec"].get("volumeName")) and _BOUND in annotations


def _selected_node(claim: JsonObject) -> str | None:
    """The node for which an unbound claim is being provisioned; its pods can only go there."""
    annotations = claim["metadata"].get("annotations") or {}
    node_name: str | None = annotations.get(SELECTED_NODE)
    return node_name


def _volume_objection(pod: JsonObject, node: JsonObject, state: State) -> str | None:
    node_name = node["metadata"]["name"]
    for name in claim_names(pod):
        claim = state.claims.get(name)
        if claim is None:
            return f"there is no claim {name}"
        if claim["metadata"].get("deletionTimestamp"):
            return f"claim {name} is being deleted"
        if "ReadWriteOncePod" in claim["spec"]["accessModes"] and any(
            name in claim_names(other) for other, _node in state.placed
        ):
            return f"claim {name} is for one pod only"
        if is_bound(claim):
            volume = state.volumes.get(claim["spec"]["volumeName"])
            if volume is None:
                return f"claim {name} has lost its volume"
            if not reaches(volume, node):
                return f"volume {volume['metadata']['name']} is out of reach"
        elif _selected_node(claim) not in (None, node_name):
            return f"claim {name} waits for a volume on {_selected_node(claim)}"
        elif claim["spec"]["storageClassName"] == "local" and not any(
            _could_serve(volume, claim, node) for volume in state.volumes.values()
        ):
            return f"no volume for claim {name}"
    return _attach_objection(pod, node_name, state)


def _attach_objection(pod: JsonObject, node_name: str, state: State) -> str | None:
    limit = state.attachable.get(node_name)
    wanted = _attached(pod, state)
    if limit is None or not wanted:
        return None
    there = {name for other in state.pods_on(node_name) for name in _attached(other, state)}
    if len(wanted | there) > limit and not wanted <= there:
        return f"{len(wanted | there)} volumes where {limit} can be attached"
    return None


def _attached(pod: JsonObject, state: State) -> set[str]:
    """The pod's claims that use the storage driver."""
    return {
        name
        for name in claim_names(pod)
        if name in state.claims and state.claims[name]["spec"]["storageClassName"] != "local"
    }


def reaches(volume: JsonObject, node: JsonObject) -> bool:
    """Whether a node can use a volume; supports the node affinity of the simulated cluster."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    if required is None:
        return True
    labels = _labels(node)
    return any(
        all(
            labels.get(wanted["key"]) in wanted["values"]
            for wanted in term.get("matchExpressions") or ()
        )
        for term in required["nodeSelectorTerms"]
    )


def _could_serve(volume: JsonObject, claim: JsonObject, node: JsonObject) -> bool:
    spec = volume["spec"]
    owner = (spec.get("claimRef") or {}).get("uid")
    return (
        spec.get("storageClassName") == claim["spec"]["storageClassName"]
        and spec["accessModes"] == claim["spec"]["accessModes"]
        and owner in (None, claim["metadata"]["uid"])
        and reaches(volume, node)
    )
