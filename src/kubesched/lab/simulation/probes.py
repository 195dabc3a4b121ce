"""Single changes to a quiet cluster: each must wake the pods that it helps.

During the fault phase, the next event repairs a lost wake-up. In a quiet cluster, a pod that misses
the one change that helps it stays pending, and `liveness` detects it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kubesched.lab.simulation import workloads
from kubesched.lab.simulation.cluster import SimulatedCluster
from kubesched.lab.simulation.trace import Trace
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.client.local import Subresource


class Probes:
    """Changes that may make pods placeable."""

    def __init__(
        self, cluster: SimulatedCluster, random: Random, trace: Trace, *, has_extender: bool
    ) -> None:
        self._cluster = cluster
        self._random = random
        self._trace = trace
        # No event reports a change of an extender's answer.
        self._changes: tuple[Callable[[], bool], ...] = (
            *(self._delete_pod, self._delete_pod, self._grow_node, self._untaint, self._uncordon),
            *(self._shrink_pod, self._delete_repelling_pod),
            *(() if has_extender else (self._relabel_node,)),
            *((self.add_group,) if cluster.has_groups else ()),
        )

    def strike(self) -> None:
        """Make one of the possible changes."""
        for change in self._random.sample(self._changes, len(self._changes)):
            if change():
                self._trace.add("probe", change.__name__.strip("_"))
                return

    def add_group(self) -> bool:
        """A group that may have to preempt, perhaps with gates, which are opened one by one."""
        mixes = ("priorities", "gates")[: self._random.randint(1, 2)]
        self._cluster.add_group(mixes, self._random.randint(1, 4), at_once=True)
        self._cluster.open_gates()
        return True

    def _delete_pod(self) -> bool:
        return self._delete(self._placed())

    def _delete_repelling_pod(self) -> bool:
        """Delete a pod that may repel others by its host port or anti-affinity."""
        return self._delete(
            [
                pod
                for pod in self._placed()
                if "podAntiAffinity" in (pod["spec"].get("affinity") or {})
                or pod["spec"]["containers"][0].get("ports")
            ]
        )

    def _delete(self, pods: list[JsonObject]) -> bool:
        if not pods:
            return False
        name = self._random.choice(pods)["metadata"]["name"]
        self._cluster.api.delete("pods", "default", name)
        return True

    def _placed(self) -> list[JsonObject]:
        return [pod for pod in self._cluster.active_pods() if pod["spec"].get("nodeName")]

    def _shrink_pod(self) -> bool:
        if not self._placed():
            return False
        self._cluster.shrink_pod()
        return True

    def _grow_node(self) -> bool:
        room = {"cpu": "6", "memory": "8Gi", "pods": "110"}
        patch: JsonObject = {"status": {"allocatable": room}}
        return self._patch_one(self._cluster.nodes(), patch, "status")

    def _untaint(self) -> bool:
        nodes = [node for node in self._cluster.nodes() if node["spec"].get("taints")]
        return self._patch_one(nodes, {"spec": {"taints": None}})

    def _uncordon(self) -> bool:
        nodes = [node for node in self._cluster.nodes() if node["spec"].get("unschedulable")]
        return self._patch_one(nodes, {"spec": {"unschedulable": None}})

    def _patch_one(
        self, nodes: list[JsonObject], patch: JsonObject, part: Subresource = ""
    ) -> bool:
        if not nodes:
            return False
        name = self._random.choice(nodes)["metadata"]["name"]
        self._cluster.api.patch("nodes", None, name, patch, subresource=part)
        return True

    def _relabel_node(self) -> bool:
        nodes = self._cluster.nodes()
        if not nodes:
            return False
        name = self._random.choice(nodes)["metadata"]["name"]
        labels = workloads.node_labels(self._random)
        self._cluster.api.patch("nodes", None, name, {"metadata": {"labels": labels}})
        return True
