"""With the gate on, the playground serves device taint rules, and its scheduler keeps pods off the
devices they taint.
"""

from __future__ import annotations

from kubesched.app.playground import PlaygroundSettings, playground
from kubesched.config import features

RULES = "devicetaintrules.resource.k8s.io"


async def test_a_rule_keeps_pods_away_until_it_is_deleted(tmp_path, eventually) -> None:
    settings = PlaygroundSettings(
        kubeconfig=tmp_path / "kubeconfig",
        nodes=1,
        gates=features.parse("DRADeviceTaintRules=true"),
    )
    async with playground(settings) as result:
        api = result.cluster.api
        api.create(
            "resourceslices.resource.k8s.io",
            {
                "metadata": {"name": "gpus"},
                "spec": {
                    "driver": "gpu.example.com",
                    "allNodes": True,
                    "pool": {"name": "shared", "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": "gpu-0"}],
                },
            },
        )
        api.create("deviceclasses.resource.k8s.io", {"metadata": {"name": "gpu"}, "spec": {}})
        taint = {"key": "example.com/maintenance", "effect": "NoSchedule"}
        rule = {"deviceSelector": {"driver": "gpu.example.com"}, "taint": taint}
        api.create(RULES, {"metadata": {"name": "maintenance"}, "spec": rule})
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
        api.create(
            "resourceclaims.resource.k8s.io",
            {
                "metadata": {"name": "gpu", "namespace": "default"},
                "spec": {"devices": {"requests": [request]}},
            },
        )
        api.create(
            "pods",
            {
                "metadata": {"name": "train", "namespace": "default"},
                "spec": {
                    "containers": [{"name": "c", "image": "train"}],
                    "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
                },
            },
        )

        def refused():
            conditions = api.get("pods", "default", "train")["status"].get("conditions") or ()
            messages = [condition.get("message", "") for condition in conditions]
            return next((text for text in messages if "cannot allocate all claims" in text), None)

        assert await eventually(result.cluster, refused, "the pod is refused")
        api.delete(RULES, None, "maintenance")

        def placed():
            return api.get("pods", "default", "train")["spec"].get("nodeName")

        assert await eventually(result.cluster, placed, "the pod is placed")
