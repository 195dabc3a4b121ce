"""Clusters in which pods are pending: random nodes and workloads, as manifests that an API server
takes.
"""

from __future__ import annotations

from random import Random
from typing import Any

Json = dict[str, Any]

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
DRIVER = "gpu.example.com"
WORKLOAD = "workload"
"""The label by which the judge counts the pods of a workload."""


def situation(seed: int) -> list[tuple[str, Json]]:
    """(resource, object) in the order in which they are created."""
    return _Situation(Random(f"pending {seed}")).objects()


class _Situation:
    def __init__(self, draw: Random) -> None:
        self.draw = draw

    def chance(self, share: float) -> bool:
        return self.draw.random() < share

    def objects(self) -> list[tuple[str, Json]]:
        made: list[tuple[str, Json]] = [
            ("priorityclasses", {"metadata": {"name": "high"}, "value": 1000}),
            ("priorityclasses", {"metadata": {"name": "low"}, "value": 10}),
            (
                "priorityclasses",
                {"metadata": {"name": "polite"}, "value": 500, "preemptionPolicy": "Never"},
            ),
        ]
        self.has_devices = self.chance(0.25)
        if self.has_devices:
            expression = f'device.driver == "{DRIVER}"'
            selectors = [{"cel": {"expression": expression}}]
            made.append(
                ("deviceclasses", {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}})
            )
        for at in range(self.draw.randint(2, 5)):
            made += self.node(f"n{at}")
        for at in range(self.draw.randint(2, 5)):
            made += self.workload(f"w{at}")
        return made

    def node(self, name: str) -> list[tuple[str, Json]]:
        labels = {HOST: name, ZONE: self.draw.choice("abc")}
        if self.chance(0.3):
            labels["disktype"] = self.draw.choice(["ssd", "hdd"])
        spec: Json = {}
        if self.chance(0.2):
            spec["taints"] = [
                {"key": self.draw.choice(["gpu", "spot"]), "value": "x", "effect": "NoSchedule"}
            ]
        if self.chance(0.1):
            spec["unschedulable"] = True
        size = {
            "cpu": str(self.draw.choice([2, 4, 4, 8])),
            "memory": f"{self.draw.choice([4, 8])}Gi",
            "pods": str(self.draw.choice([4, 10, 10])),
        }
        made: list[tuple[str, Json]] = [
            (
                "nodes",
                {
                    "metadata": {"name": name, "labels": labels},
                    "spec": spec,
                    "status": {"capacity": size, "allocatable": size},
                },
            )
        ]
        if self.has_devices and self.chance(0.7):
            devices = [
                {"name": f"gpu-{at}", "attributes": {"model": {"string": "a100"}}}
                for at in range(self.draw.randint(1, 3))
            ]
            pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
            made.append(
                (
                    "resourceslices",
                    {
                        "metadata": {"name": f"slice-{name}"},
                        "spec": {
                            "driver": DRIVER,
                            "pool": pool,
                            "nodeName": name,
                            "devices": devices,
                        },
                    },
                )
            )
        return made

    def workload(self, name: str) -> list[tuple[str, Json]]:
        kind = self.draw.choices(
            ["deployments", "replicasets", "statefulsets", "daemonsets", "jobs", "pods"],
            [5, 1, 2, 1, 1, 2],
        )[0]
        labels = {WORKLOAD: name}
        made: list[tuple[str, Json]] = []
        spec = self.pod_spec(name)
        replicas = self.draw.randint(1, 5)
        if self.has_devices and self.chance(0.4):
            made.append(("resourceclaimtemplates", self.claim_template(name)))
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": name}]
            spec["containers"][0].setdefault("resources", {})["claims"] = [{"name": "gpu"}]
        template = {"metadata": {"labels": labels}, "spec": spec}
        metadata = {"name": name}
        body: Json = {"selector": {"matchLabels": labels}, "template": template}
        if kind in ("deployments", "replicasets", "statefulsets"):
            body["replicas"] = replicas
        if kind == "statefulsets":
            body["serviceName"] = name
            if self.chance(0.3):
                body["podManagementPolicy"] = "Parallel"
            if self.chance(0.4):
                body["volumeClaimTemplates"] = [self.claim("data")]
                spec["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        elif self.chance(0.15):
            made.append(("persistentvolumeclaims", self.claim(name)))
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        if kind == "jobs":
            del body["selector"]
            body |= {"parallelism": replicas, "completions": replicas}
            spec["restartPolicy"] = "Never"
            spec.setdefault("terminationGracePeriodSeconds", 0)
            template["metadata"]["annotations"] = {"kubelet.kubesched.io/run-duration": "24h"}
        if kind == "pods":
            for at in range(replicas):
                pod_name = f"{name}-{at}"
                meta = {"name": pod_name, "labels": {WORKLOAD: pod_name, "group": name}}
                made.append(("pods", {"metadata": meta, "spec": spec}))
        else:
            made.append((kind, {"metadata": metadata, "spec": body}))
        if self.chance(0.3):
            budget = {"maxUnavailable": 1} if self.chance(0.5) else {"minAvailable": 1}
            budget_spec = {"selector": {"matchLabels": labels}, **budget}
            made.append(("poddisruptionbudgets", {"metadata": {"name": name}, "spec": budget_spec}))
        return made

    def claim(self, name: str) -> Json:
        asked = {"requests": {"storage": "1Gi"}}
        spec = {"accessModes": ["ReadWriteOnce"], "resources": asked}
        return {"metadata": {"name": name}, "spec": spec}

    def claim_template(self, name: str) -> Json:
        exactly: Json = {"deviceClassName": "gpu", "count": self.draw.randint(1, 2)}
        if self.chance(0.2):
            expression = f'device.attributes["{DRIVER}"].model == "h100"'
            exactly["selectors"] = [{"cel": {"expression": expression}}]
        devices = {"requests": [{"name": "gpu", "exactly": exactly}]}
        return {"metadata": {"name": name}, "spec": {"spec": {"devices": devices}}}

    def pod_spec(self, name: str) -> Json:
        requests = {"cpu": self.draw.choice(["500m", "1", "1500m", "2", "3", "6"])}
        if self.chance(0.3):
            requests["memory"] = f"{self.draw.choice([1, 3, 6])}Gi"
        container: Json = {"name": "main", "image": "app:1", "resources": {"requests": requests}}
        spec: Json = {"containers": [container], "terminationGracePeriodSeconds": 0}
        if self.chance(0.25):
            spec["priorityClassName"] = self.draw.choice(["high", "low", "polite"])
        if self.chance(0.2):
            spec["nodeSelector"] = {"disktype": "ssd"}
        if self.chance(0.1):
            spec["tolerations"] = [{"key": "spot", "operator": "Exists"}]
        if self.chance(0.1):
            container["ports"] = [{"containerPort": 80, "hostPort": 80}]
        selector = {"matchLabels": {WORKLOAD: name}}
        if self.chance(0.25):
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": self.draw.choice([HOST, ZONE]),
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": selector,
                }
            ]
        if self.chance(0.2):
            term = {"topologyKey": self.draw.choice([HOST, ZONE]), "labelSelector": selector}
            kind = "podAntiAffinity" if self.chance(0.8) else "podAffinity"
            spec["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        return spec
