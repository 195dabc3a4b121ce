"""The playground has storage: a claim without a class gets a volume where its pod goes."""

from __future__ import annotations

import json

from kubesched.app.playground import PlaygroundSettings, playground


async def test_a_claim_without_a_class_is_served(tmp_path, kubectl, eventually) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "db"},
        "spec": {
            "containers": [{"name": "c", "image": "db"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    }
    settings = PlaygroundSettings(kubeconfig=tmp_path / "kubeconfig", nodes=3)
    async with playground(settings) as result:
        api = result.cluster.api
        await kubectl("apply", "-f", "-", stdin=f"{json.dumps(claim)}\n{json.dumps(pod)}")

        def running():
            db = api.get("pods", "default", "db")
            return db if db["status"].get("phase") == "Running" else None

        db = await eventually(result.cluster, running, "the pod runs")
        bound = api.get("persistentvolumeclaims", "default", "data")
        assert bound["spec"]["storageClassName"] == "standard"
        volume = api.get("persistentvolumes", None, bound["spec"]["volumeName"])
        (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        (expression,) = term["matchExpressions"]
        node = api.get("nodes", None, db["spec"]["nodeName"])
        assert node["metadata"]["labels"][expression["key"]] in expression["values"]
