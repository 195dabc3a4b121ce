"""policy/v1: disruption budgets."""

from __future__ import annotations

from kubesched.api.meta import (
    Condition,
    IntOrString,
    LabelSelector,
    ObjectMeta,
    Record,
    constant,
)


class PodDisruptionBudgetSpec(Record):
    """The selected pods, and how many of them must stay."""

    min_available: IntOrString | None = None
    selector: LabelSelector | None = None
    max_unavailable: IntOrString | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Record):
    """Allowed disruptions, and those just granted (pod name to time)."""

    observed_generation: int = 0
    disrupted_pods: dict[str, str | None] | None = None
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    conditions: list[Condition] | None = None


class PodDisruptionBudget(Record):
    """A limit on voluntary disruptions."""

    kind: str = constant("PodDisruptionBudget")
    api_version: str = constant("policy/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
