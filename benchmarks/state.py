"""Time and memory to load a dump: `benchmarks/state.py [--nodes N] [--pods N] [--gzip] [--yaml]`.

Writes a dump as `kubectl get nodes,pods -A -o json` (or `-o yaml`) prints it (indented, one List,
pods of about 7 KB as a real cluster has them), loads it in a fresh process and prints seconds and
peak memory.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

JSON = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--gzip", action="store_true", help="measure the packed dump")
    parser.add_argument("--yaml", action="store_true", help="measure a dump in YAML")
    parser.add_argument("--keep", metavar="FILE", help="write the dump there and keep it")
    parser.add_argument("--load", metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.load:
        _load(args.load)
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(args.keep or f"{directory}/dump.json{'.gz' if args.gzip else ''}")
        started = time.perf_counter()
        with gzip.open(path, "wt", compresslevel=1) if args.gzip else open(path, "w") as file:
            write = _write_yaml if args.yaml else _write
            write(file, args.nodes, args.pods)  # type: ignore[arg-type]  # both take text
        size_mb = path.stat().st_size / 1e6
        print(f"dump: {size_mb:.0f} MB in {time.perf_counter() - started:.0f} s")
        subprocess.run([sys.executable, __file__, "--load", str(path)], check=True)


def _load(path: str) -> None:
    import resource

    from kubesched.insight.state.dumps import load_dumps
    from kubesched.insight.state.memory import in_memory_scheduler

    started, cpu = time.perf_counter(), time.process_time()
    state = load_dumps([path])
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with open("/proc/self/statm") as statm:
        now_mb = int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
    print(state.describe())
    print(
        f"loaded in {seconds:.1f} s ({cpu:.1f} s CPU), peak {peak_mb:.0f} MiB, then {now_mb:.0f} "
        "MiB"
    )
    cpu = time.process_time()
    in_memory_scheduler(state)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"a scheduler over it: {time.process_time() - cpu:.1f} s CPU, peak {peak_mb:.0f} MiB")


def _write(file: IO[str], nodes: int, pods: int) -> None:
    """Indented by four like kubectl, keys sorted."""
    file.write('{\n    "apiVersion": "v1",\n    "items": [\n')
    separator = ""
    for obj in _objects(nodes, pods):
        text = json.dumps(obj, indent=4, sort_keys=True)
        file.write(separator + "\n".join(f"        {line}" for line in text.splitlines()))
        separator = ",\n"
    file.write(
        '\n    ],\n    "kind": "List",\n    "metadata": {\n        "resourceVersion": ""\n    '
        "}\n}\n"
    )


def _write_yaml(file: IO[str], nodes: int, pods: int) -> None:
    import yaml

    class Dumper(yaml.CSafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    file.write("apiVersion: v1\nitems:\n")
    for obj in _objects(nodes, pods):
        file.write(yaml.dump([obj], Dumper=Dumper))
    file.write('kind: List\nmetadata:\n  resourceVersion: ""\n')


def _objects(nodes: int, pods: int) -> Iterator[JSON]:
    for index in range(nodes):
        yield _node(index)
    for index in range(pods):
        yield _pod(index, nodes)


def _node(index: int) -> JSON:
    size = {
        "cpu": "32",
        "ephemeral-storage": "203070420Ki",
        "hugepages-2Mi": "0",
        "memory": "128887056Ki",
        "pods": "110",
    }
    when = "2026-01-01T00:00:00Z"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
            "creationTimestamp": when,
            "labels": {
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": f"node-{index}",
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "m5.8xlarge",
                "topology.kubernetes.io/region": "eu-1",
                "topology.kubernetes.io/zone": f"eu-1{'abc'[index % 3]}",
            },
            "name": f"node-{index}",
            "resourceVersion": str(1000 + index),
            "uid": f"00000000-0000-4000-8000-{index:012d}",
        },
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": f"cloud:///eu-1/i-{index:08x}"},
        "status": {
            "addresses": [{"address": "10.1.0.1", "type": "InternalIP"}],
            "allocatable": size,
            "capacity": size,
            "conditions": [
                {
                    "lastHeartbeatTime": when,
                    "lastTransitionTime": when,
                    "message": f"kubelet reports {kind}",
                    "reason": "KubeletReady",
                    "status": "True" if kind == "Ready" else "False",
                    "type": kind,
                }
                for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
            ],
            "images": [
                {
                    "names": [
                        f"images.example/app-{n}@sha256:{n:064x}",
                        f"images.example/app-{n}:1.{n}",
                    ],
                    "sizeBytes": 50_000_000 + n,
                }
                for n in range(index % 7, index % 7 + 20)
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "kubeletVersion": "v1.36.4",
                "operatingSystem": "linux",
            },
        },
    }


def _pod(index: int, nodes: int) -> JSON:
    when, app = f"2026-01-02T{index % 24:02}:{index % 60:02}:{index % 59:02}Z", f"app-{index % 997}"
    token = f"kube-api-access-{index:05x}"
    namespace = f"team-{index % 61}"
    probe = {
        "failureThreshold": 3,
        "httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"},
        "periodSeconds": 10,
        "successThreshold": 1,
        "timeoutSeconds": 1,
    }
    labels = {
        "app.kubernetes.io/instance": app,
        "app.kubernetes.io/name": app,
        "pod-template-hash": f"h{index % 997:09x}",
        "team": namespace,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "annotations": {
                "prometheus.io/port": "8080",
                "prometheus.io/scrape": "true",
                "checksum/config": f"c{index % 997:063x}",
            },
            "creationTimestamp": when,
            "generateName": f"{app}-",
            "labels": labels,
            "name": f"{app}-{index:07d}",
            "namespace": namespace,
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "blockOwnerDeletion": True,
                    "controller": True,
                    "kind": "ReplicaSet",
                    "name": app,
                    "uid": f"00000000-0000-4000-9000-{index % 997:012d}",
                }
            ],
            "resourceVersion": str(100_000 + index),
            "uid": f"00000000-0000-4000-a000-{index:012d}",
        },
        "spec": {
            "affinity": {
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "podAffinityTerm": {
                                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": app}},
                                "topologyKey": "kubernetes.io/hostname",
                            },
                            "weight": 100,
                        }
                    ]
                }
            },
            "containers": [
                {
                    "args": ["--config=/etc/app/config.yaml", "--listen=:8080"],
                    "env": [{"name": f"SETTING_{n}", "value": f"value-{n}"} for n in range(12)],
                    "image": f"images.example/{app}:1.{index % 17}",
                    "imagePullPolicy": "IfNotPresent",
                    "livenessProbe": probe,
                    "name": "app",
                    "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
                    "readinessProbe": probe,
                    "resources": {
                        "limits": {"memory": "512Mi"},
                        "requests": {"cpu": "250m", "memory": "256Mi"},
                    },
                    "securityContext": {"allowPrivilegeEscalation": False, "runAsNonRoot": True},
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "volumeMounts": [
                        {"mountPath": "/etc/app", "name": "config"},
                        {
                            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                            "name": token,
                            "readOnly": True,
                        },
                    ],
                }
            ],
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": True,
            "nodeName": f"node-{index % nodes}",
            "preemptionPolicy": "PreemptLowerPriority",
            "priority": 0,
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "serviceAccount": "default",
            "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 30,
            "tolerations": [
                {
                    "effect": "NoExecute",
                    "key": f"node.kubernetes.io/{what}",
                    "operator": "Exists",
                    "tolerationSeconds": 300,
                }
                for what in ("not-ready", "unreachable")
            ],
            "volumes": [
                {"configMap": {"defaultMode": 420, "name": f"{app}-config"}, "name": "config"},
                {
                    "name": token,
                    "projected": {
                        "defaultMode": 420,
                        "sources": [
                            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                            {
                                "configMap": {
                                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                                    "name": "kube-root-ca.crt",
                                }
                            },
                        ],
                    },
                },
            ],
        },
        "status": {
            "conditions": [
                {"lastProbeTime": None, "lastTransitionTime": when, "status": "True", "type": kind}
                for kind in (
                    "PodReadyToStartContainers",
                    "Initialized",
                    "Ready",
                    "ContainersReady",
                    "PodScheduled",
                )
            ],
            "containerStatuses": [
                {
                    "containerID": f"containerd://{index:064x}",
                    "image": f"images.example/{app}:1.{index % 17}",
                    "imageID": f"images.example/{app}@sha256:{index % 997:064x}",
                    "lastState": {},
                    "name": "app",
                    "ready": True,
                    "restartCount": 0,
                    "started": True,
                    "state": {"running": {"startedAt": when}},
                }
            ],
            "hostIP": "10.1.0.1",
            "hostIPs": [{"ip": "10.1.0.1"}],
            "phase": "Running",
            "podIP": "10.2.0.1",
            "podIPs": [{"ip": "10.2.0.1"}],
            "qosClass": "Burstable",
            "startTime": when,
        },
    }


if __name__ == "__main__":
    main()
