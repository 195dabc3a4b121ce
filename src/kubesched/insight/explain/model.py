"""The result of `explain`: plain records; `schema.json` is the published schema of their JSON."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

SCHEMA_ID = "urn:kubesched:explain:v1"


class Verdict(Enum):
    """How it stands with the pod."""

    PLACED = "Placed"
    """The pod is bound to a node."""
    FITS = "Fits"
    """Some node would take the pod now."""
    NOT_NOW = "NotNow"
    """No node takes the pod now, but room may become available."""
    NEVER = "Never"
    """No node of this cluster could take the pod even if the node were empty and untainted."""
    WAITING = "Waiting"
    """The pod waits for something other than a node."""


class _Record(msgspec.Struct, rename="camel"):
    """Base of the records: camel case in JSON, every field always present."""


class NodeCounts(_Record):
    """How many nodes there are, and how many would take the pod."""

    total: int
    feasible: int


class Reason(_Record):
    """One reason, over all nodes."""

    plugin: str
    code: str
    """Stable; see the reference."""
    reason: str
    """The plugin's message."""
    detail: str
    """What exactly is missing or in the way, if more is known than the plugin's message."""
    nodes: int
    """Nodes rejected for this reason."""
    only_reason: int
    """Nodes rejected only for this reason."""
    remedy: str
    """The change that would help."""


class Failure(_Record):
    """One plugin's rejection of one node."""

    plugin: str
    code: str
    status: str
    """`Unschedulable`, `UnschedulableAndUnresolvable` (eviction won't help), `Pending`, `Error`."""
    reasons: list[str]
    lacks: list[str]
    """Readable reasons with what is missing on this node; one entry per reason."""
    with_nominated: list[str]
    """Pods nominated to the node without which the plugin would not reject it."""


class Score(_Record):
    """One plugin's score of one node."""

    raw: int
    normalized: int
    weighted: int


class NodeRow(_Record):
    """One node's story."""

    node: str
    feasible: bool
    failures: list[Failure]
    scores: dict[str, Score]
    """By plugin; empty for nodes that are not feasible."""
    total: int | None
    rank: int | None
    """1 for the highest total; nodes with equal totals share a rank."""


class WaitingFor(_Record):
    """Something other than a node that the pod waits for."""

    code: str
    plugin: str
    """The plugin that holds the pod back; empty if none does."""
    what: str
    names: list[str]
    """Names of objects, gates or schedulers."""


class WokenBy(_Record):
    """The events after which the pod is tried again."""

    plugin: str
    events: list[str]
    """Names as in metrics and logs; `*` stands for any event."""
    words: list[str]
    """The same in words, such as `a node is added`."""


class Chosen(_Record, kw_only=True):
    """The node the pod is on, or would be given, and how it compares with the others."""

    node: str
    total: int | None = None
    rank: int | None = None
    margin: int | None = None
    """Total minus the best total of any other feasible node; None if there is no other."""
    tied: int = 0
    """Other feasible nodes with the same total."""
    decisive: list[str] = []
    """Plugins without whose score another node would have won."""
    tying: list[str] = []
    """Plugins without whose score other nodes would have had the same total."""
    runners_up: list[str]


class Victim(_Record):
    """A pod that would be evicted."""

    pod: str
    priority: int


class Preemption(_Record):
    """What the scheduler would do to make room."""

    node: str
    victims: list[Victim]
    violated_budgets: int


class Change(_Record):
    """One change of a fix."""

    kind: str
    text: str
    object: str
    """`kind/namespace/name` of the changed object."""


class Fix(_Record):
    """Changes that together make the pod fit; tried in a copy of the cluster."""

    changes: list[Change]
    node: str
    other_nodes: int
    """Further nodes that would take the pod after the same changes."""
    places: int | None
    """Pending pods of the workload that get a node; None if only the filters were asked."""
    wanted: int | None
    """Pods of the workload that have none before."""
    commands: list[str]
    effects: list[str]
    """Side effects: disruption budgets, controllers that recreate a pod."""


class SelectorMatches(_Record):
    """How many devices a selector of a request or of its class selects."""

    expression: str
    source: str
    """`class NAME` or `request NAME`."""
    matches: int
    devices: int
    """Devices it was tried on: all of the cluster for a class, those of the class for a request."""
    values: dict[str, list[str]]
    """Values that these devices have of each attribute or capacity in the expression."""
    error: str
    """Why it cannot be evaluated for some device; empty if it can."""


class DeviceHolder(_Record):
    """A device that a request selects, and the claim it is allocated to."""

    device: str
    """`driver/pool/device`."""
    claim: str
    pods: list[str]
    """Pods that the claim is reserved for."""


class DeviceNodes(_Record):
    """Nodes on which a request fails alike; the counts are of each node."""

    nodes: list[str]
    pools: list[str]
    """Of the first node: `driver/pool: ` and how many devices it has, or what is wrong with it."""
    devices: int
    of_class: int
    matching: int
    """Devices that class and request select."""
    free: int
    """Matching devices that the request could take now, each by itself."""
    obstacles: list[str]
    never: bool
    """True if the claims could not be allocated even if no device were in use or tainted."""


class DeviceNeed(_Record):
    """A request that cannot be served on some nodes; the counts are of the whole cluster."""

    claim: str
    request: str
    """`request`, or `request/alternative`."""
    device_class: str
    wants: str
    devices: int
    of_class: int
    matching: int
    in_use: int
    """Matching devices that are allocated, wholly or in part."""
    selectors: list[SelectorMatches]
    holders: list[DeviceHolder]
    nodes: list[DeviceNodes]


class VolumeNeed(_Record):
    """A volume claim of a pod that a volume plugin rejects on some node."""

    claim: str
    storage_class: str
    volume: str
    """The volume it is bound to; empty if none."""
    told: list[str]
    """How the claim stands, in parts of a sentence."""


class Missing(_Record):
    """Kinds that the answer depends on and that the source of the objects does not hold."""

    resources: list[str]
    text: str
    command: str
    """Writes them, or a whole dump, into a file for `--from`."""


class Condition(_Record):
    """The PodScheduled condition as it is stored now."""

    status: str
    reason: str
    message: str
    since: str


class Explanation(_Record, kw_only=True):
    """Everything there is to say about one pod."""

    pod: str
    uid: str
    profile: str
    """The profile that was evaluated; empty if the pod has none."""
    verdict: Verdict
    summary: str
    """The verdict in a sentence, after what is missing."""
    missing: Missing | None = None
    message: str = ""
    """The PodScheduled message, byte for byte as the scheduler writes it; empty if none."""
    condition_reason: str = ""
    """The reason written with the message: `Unschedulable` or `SchedulerError`."""
    condition: Condition | None
    """The condition stored now, which may be older."""
    nominated_node: str
    waiting_for: list[WaitingFor]
    woken_by: list[WokenBy] = []
    nodes: NodeCounts
    reasons: list[Reason] = []
    matrix: list[NodeRow] = []
    devices: list[DeviceNeed] = []
    """Requests of resource claims that some node cannot serve."""
    volumes: list[VolumeNeed] = []
    """How the pod's volume claims stand, if one of them is in the way."""
    chosen: Chosen | None = None
    preemption: Preemption | None = None
    fixes: list[Fix] | None = None
    """None if fixes were not requested."""
    notes: list[str]
    """Limits of the answer: what is unknown or was not evaluated."""


class Member(_Record):
    """A pending member of a pod group, tried after the ones before it."""

    pod: str
    node: str
    """Where it would go; empty if nowhere."""
    lacks: str


class Domain(_Record):
    """A topology domain, and how far the group gets in it."""

    name: str
    nodes: int
    placed: int
    """Pending members that find a node there."""
    lacks: str
    """What the first member without a node is told."""


class GroupExplanation(_Record):
    """Everything there is to say about one pod group."""

    kind: str
    """PodGroup or CompositePodGroup."""
    group: str
    verdict: Verdict
    summary: str
    message: str
    """What the scheduler writes as the group's condition; empty if it starts or is not tried."""
    min_count: int
    """1 for a basic group, 0 for one that does not exist; of a composite, how many groups."""
    pods: int
    scheduled: int
    waiting_for: list[WaitingFor]
    members: list[Member]
    domains: list[Domain]
    """Of groups with a topology constraint."""
    preemption: Preemption | None
    helps: list[str]
    """What would let it start; each was tried with the whole group."""
    notes: list[str]


def schema() -> dict[str, Any]:
    """The JSON schema of an explanation."""
    made = msgspec.json.schema(Explanation)
    for record in made["$defs"].values():  # defaults are for those who make records
        if "properties" in record:
            record["required"] = list(record["properties"])
            for field in record["properties"].values():
                field.pop("default", None)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **made}
