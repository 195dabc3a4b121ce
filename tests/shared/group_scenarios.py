"""A cluster in memory for scenarios with pod groups: nodes are given in cpu, pods ask for 1."""

from __future__ import annotations

from typing import Any

from kubesched.api import codec
from kubesched.api.core_v1 import Pod
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.api.scheduling_v1alpha3 import CompositePodGroup
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.config.features import from_map
from kubesched.testing import Cluster, make_node, make_pod

NV = ", pod group preemption: No preemption victims found for incoming preemptor"
PUS = "pod group is unschedulable"
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 1
"""
"""Among nodes with equal scores the first is chosen."""


class Groups(Cluster):
    """The cluster and what scenarios ask of it."""

    def __init__(self, *nodes: float, gates: str = "", config: str = "", **settings: Any) -> None:
        """`config` is added to the configuration."""
        wanted = {"GenericWorkload": True} | dict.fromkeys(gates.split(), True)
        super().__init__(config=CONFIG + config, gates=from_map(wanted), **settings)
        self.started = 0
        for number, cpu in enumerate(nodes, start=1):
            self.node(f"n{number}", cpu)

    def bound(self, pod: Pod, node_name: str) -> None:
        self.started += 1
        status = {"phase": "Running", "startTime": f"2026-01-01T00:{self.started:02}:00Z"}
        pod = codec.convert({**codec.to_json(pod), "status": status}, Pod)
        super().bound(pod, node_name)

    def node(self, name: str, cpu: float, **labels: str) -> None:
        builder = make_node(name).capacity(cpu=str(cpu), memory="64Gi", pods="110")
        self.add(builder.label("kubernetes.io/hostname", name).labels(**labels).build())

    def group(self, name: str, gang: int = 0, **spec: Any) -> None:
        """A gang with that `minCount`; without one, a basic group."""
        self.add(codec.convert(_group("PodGroup", name, gang, "minCount", spec), PodGroup))

    def composite(self, name: str, gang: int = 0, **spec: Any) -> None:
        manifest = _group("CompositePodGroup", name, gang, "minGroupCount", spec)
        self.add(codec.convert(manifest, CompositePodGroup))

    def pods(
        self,
        group: str,
        *names: str,
        cpu: float = 1,
        priority: int = 0,
        labels: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        """Pods of a group, or without one, created one after the other."""
        for name in names:
            builder = make_pod(name).cpu(str(cpu)).priority(priority).spec(**spec)
            builder.labels(**labels or {})
            if group:
                builder.spec(schedulingGroup={"podGroupName": group})
            self.add(builder.build())

    def change_pod(self, name: str, part: str, **fields: Any) -> None:
        """Set fields of a pod's metadata, spec or status."""
        manifest = codec.to_json(self.pod(name))
        manifest[part] = {**manifest.get(part, {}), **fields}
        self.update(codec.convert(manifest, Pod))

    def budget(self, name: str, allowed: int, **labels: str) -> None:
        spec = {"selector": {"matchLabels": labels}}
        status = {"disruptionsAllowed": allowed}
        meta = {"name": name, "namespace": "default"}
        manifest = {"metadata": meta, "spec": spec, "status": status}
        self.add(codec.convert(manifest, PodDisruptionBudget))

    def min_count(self, name: str, count: int) -> None:
        group = self.find(PodGroup, "default", name)
        manifest = codec.to_json(group)
        manifest["spec"]["schedulingPolicy"] = {"gang": {"minCount": count}}
        self.update(codec.convert(manifest, PodGroup))

    def message(self, pod: str) -> str:
        condition = self.condition(pod)
        return "" if condition is None else condition[1]

    def group_says(self, name: str) -> tuple[str, str, str] | None:
        """(status, reason, message) of the group's condition."""
        group = self.find(PodGroup, "default", name)
        for condition in (group and group.status.conditions) or ():
            return condition.status, condition.reason, condition.message
        return None

    def nodes_of(self, *names: str) -> list[str]:
        return [self.node_of(name) for name in names]

    def is_gone(self, name: str) -> bool:
        return self.find(Pod, "default", name) is None

    def nominated(self, name: str) -> str:
        return self.pod(name).status.nominated_node_name


def _group(kind: str, name: str, gang: int, count: str, spec: dict[str, Any]) -> dict[str, Any]:
    policy = {"gang": {count: gang}} if gang else {"basic": {}}
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {"kind": kind, "metadata": meta, "spec": {"schedulingPolicy": policy, **spec}}
