"""Placement rules of pods and nodes: taints, tolerations, affinity, spreading."""

from __future__ import annotations

from kubesched.api.meta import LabelSelector, Record


class Taint(Record):
    """A mark on a node that repels pods without a matching toleration."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Toleration(Record):
    """Which taints a pod tolerates; `tolerations.tolerates` evaluates it."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeSelectorRequirement(Record):
    """One condition on a node's label or field: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeSelectorTerm(Record):
    """Conditions on one node that must all hold; an empty term matches nothing."""

    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None


class NodeSelector(Record):
    """Terms, at least one of which must match."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredSchedulingTerm(Record):
    """A node selector term worth `weight` points."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Record):
    """Which nodes a pod requires or prefers."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredSchedulingTerm] | None = (
        None
    )


class PodAffinityTerm(Record):
    """A set of pods, and the topology in which to be near them or away from them."""

    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodAffinityTerm(Record):
    """A pod affinity term worth `weight` points."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Record):
    """Which pods to be near."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] | None = (
        None
    )


class PodAntiAffinity(PodAffinity):
    """Which pods to keep away from."""


class Affinity(Record):
    """All affinities of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


class TopologySpreadConstraint(Record):
    """How evenly matching pods must, or should, spread over a topology."""

    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class TopologySelectorLabelRequirement(Record):
    """A topology label and its allowed values."""

    key: str = ""
    values: list[str] | None = None


class TopologySelectorTerm(Record):
    """Topology requirements that must all hold; used by StorageClass.allowedTopologies."""

    match_label_expressions: list[TopologySelectorLabelRequirement] | None = None
