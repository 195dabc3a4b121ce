"""A playground too small for its pods, recorded: pods wait, come and go, preempt, and use volumes
and devices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from kubesched.app import demo
from kubesched.app.playground import PlaygroundSettings, playground
from kubesched.base.errors import ApiError
from kubesched.playground.client.local import LocalApi
from kubesched.playground.kubelet.node_templates import load_node_pools

POOLS = b"""
apiVersion: kubesched.io/v1alpha1
kind: NodePools
pools:
- name: plain
- name: gpu
  count: 1
  drivers:
  - driver: gpu.example.com
    devices: [{name: gpu, count: 3}]
"""
PRIORITIES = {"low": -10, "high": 1000, "urgent": 100_000}
ZONE = "topology.kubernetes.io/zone"
DEADLINE_S = 60.0
PAUSE_S = 0.02
REST_S = 0.5


def record_crowd(
    folder: Path,
    seed: int,
    *,
    changes: int = 120,
    claims: bool = True,
    until: Callable[[str], bool] = lambda _folder: True,
    **settings: Any,
) -> Path:
    """Record a playground under churn; returns the folder of the recording.

    Without `claims` no pod has volumes or devices, whose binding takes long, so that checkpoints of
    the scheduler come soon. It ends after that many changes, or as soon as `until` says of the
    folder that it may, within a minute.
    """
    where = str(folder / "recording")

    async def record() -> None:
        chosen = PlaygroundSettings(
            kubeconfig=folder / "kubeconfig",
            nodes=4,
            pools=load_node_pools(POOLS),
            record=where,
            **settings,
        )
        async with asyncio.timeout(DEADLINE_S), playground(chosen) as running:
            api = running.cluster.api
            await demo.wait_until_running(api, demo.create(api), DEADLINE_S)
            crowd = _Crowd(api, Random(seed), claims=claims)
            count = 0
            while count < changes or not until(where):
                crowd.change()
                count += 1
                # A checkpoint is taken while no pod is being tried or bound.
                is_rest = count > changes and count % 10 == 0
                await asyncio.sleep(REST_S if is_rest else PAUSE_S)

    asyncio.run(record())
    return Path(where)


class _Crowd:
    """Users who ask for more than there is."""

    def __init__(self, api: LocalApi, random: Random, *, claims: bool) -> None:
        self._api = api
        self._random = random
        self._claims = claims
        self._names: list[str] = []
        self._created = 0
        for name, value in PRIORITIES.items():
            api.create("priorityclasses.scheduling.k8s.io", _named(name) | {"value": value})
        selector = {"cel": {"expression": 'device.driver == "gpu.example.com"'}}
        api.create(
            "deviceclasses.resource.k8s.io", _named("gpu") | {"spec": {"selectors": [selector]}}
        )
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
        claim = {"spec": {"spec": {"devices": {"requests": [request]}}}}
        api.create("resourceclaimtemplates.resource.k8s.io", _named("gpu") | claim, "default")

    def change(self) -> None:
        draw = self._random.random()
        if draw < 0.55 or not self._names:
            self._create()
        elif draw < 0.9:
            self._delete()
        elif draw < 0.95:
            self._scale()
        else:
            self._cordon()

    def _create(self) -> None:
        self._created += 1
        name = f"pod-{self._created}"
        self._api.create("pods", self._pod(name), "default")
        self._names.append(name)

    def _delete(self) -> None:
        name = self._names.pop(self._random.randrange(len(self._names)))
        try:
            self._api.delete("pods", "default", name)
        except ApiError as error:
            if error.code != 404:  # preempted meanwhile
                raise

    def _scale(self) -> None:
        replicas = {"spec": {"replicas": self._random.randint(1, 8)}}
        name = self._random.choice(["web", "store", "worker"])
        self._api.patch("deployments.apps", demo.NAMESPACE, name, replicas)

    def _cordon(self) -> None:
        node = self._random.choice(["plain-0", "plain-1", "plain-2"])
        change = {"spec": {"unschedulable": self._random.random() < 0.3}}
        self._api.patch("nodes", None, node, change)

    def _pod(self, name: str) -> dict[str, Any]:
        random = self._random
        cpu = random.choice(["250m", "500m", "1", "2", "3"])
        container: dict[str, Any] = {
            "name": "main",
            "image": "example.com/main:1.0",
            "resources": {"requests": {"cpu": cpu}},
        }
        spec: dict[str, Any] = {
            "containers": [container],
            "terminationGracePeriodSeconds": random.choice([0, 1]),
        }
        if random.random() < 0.5:
            spec["priorityClassName"] = random.choice(list(PRIORITIES))
        labels = {"app": random.choice("abc")}
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
        draw = random.random()
        if draw < 0.15:
            required = "requiredDuringSchedulingIgnoredDuringExecution"
            spec["affinity"] = {"podAntiAffinity": {required: [term]}}
        elif draw < 0.3:
            constraint = term | {
                "topologyKey": ZONE,
                "maxSkew": 1,
                "whenUnsatisfiable": "DoNotSchedule",
            }
            spec["topologySpreadConstraints"] = [constraint]
        elif draw < 0.45 and self._claims:
            self._add_volume(name, spec)
        elif draw < 0.6 and self._claims:
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
            container["resources"]["claims"] = [{"name": "gpu"}]
        return _named(name, labels) | {"spec": spec}

    def _add_volume(self, name: str, spec: dict[str, Any]) -> None:
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
        self._api.create("persistentvolumeclaims", _named(name) | {"spec": claim}, "default")
        source = {"persistentVolumeClaim": {"claimName": name}}
        spec["volumes"] = [{"name": "data", **source}]


def _named(name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels or {}}}
