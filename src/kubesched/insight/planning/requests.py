"""Other requests of an existing workload: its pods are replaced one by one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from msgspec import structs

from kubesched.api import quantity
from kubesched.api.core_v1 import Pod
from kubesched.api.core_v1.pod import ResourceRequirements
from kubesched.insight.planning.deletion import pods_of, workload_named
from kubesched.insight.state.planned_cluster import PlanError, PlannedCluster
from kubesched.insight.state.replacements import Replacements


def pods_to_renew(
    world: PlannedCluster,
    replacements: Replacements,
    wanted: Mapping[str, Mapping[str, str]],
    namespace: str,
) -> list[Pod]:
    """The pods of the workloads, pending ones first; replacements get the new requests.

    Raises:
        PlanError: the workload does not exist, or a quantity is invalid.
    """
    renewed: list[Pod] = []
    for workload, requests in wanted.items():
        for resource, amount in requests.items():
            try:
                quantity.parse(amount)
            except ValueError as error:
                raise PlanError(f"requests: {workload}: {resource}: {error}") from None
        pods = pods_of(world, *workload_named(workload, namespace, "requests"))
        if not pods:
            raise PlanError(f"requests: there is no pod of {workload}")
        owners = {owner.uid for pod in pods if (owner := pod.metadata.controller()) is not None}
        replacements.edits |= dict.fromkeys(owners, partial(_with_requests, requests))
        renewed += sorted(pods, key=lambda pod: bool(pod.spec.node_name))
    return renewed


def _with_requests(requests: Mapping[str, str], pod: Pod) -> Pod:
    """The pod with these requests of its first container."""
    containers = list(pod.spec.containers or ())
    old = containers[0].resources or ResourceRequirements()
    resources = structs.replace(old, requests={**(old.requests or {}), **requests})
    containers[0] = structs.replace(containers[0], resources=resources)
    return structs.replace(pod, spec=structs.replace(pod.spec, containers=containers))
