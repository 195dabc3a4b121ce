"""Clusters in memory for recorded cases, and answers in the recordings' form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from kubesched.framework import Code, NodeColumns, Plugin, Status
from kubesched.framework.api import Node, Pod
from kubesched.testing import Cluster

JSON = dict[str, Any]


def pod_from(manifest: JSON) -> Pod:
    return msgspec.convert(manifest, Pod)


def node_from(manifest: JSON) -> Node:
    return msgspec.convert(manifest, Node)


def config_of(args: Mapping[str, JSON | None], *others: str) -> str:
    """A profile of these plugins (name -> arguments) and the ones every profile needs."""
    enabled = ["PrioritySort", "DefaultBinder", *others, *args]
    return json.dumps(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [
                {
                    "plugins": {
                        "multiPoint": {
                            "enabled": [{"name": name} for name in enabled],
                            "disabled": [{"name": "*"}],
                        }
                    },
                    "pluginConfig": [
                        {"name": name, "args": given}
                        for name, given in args.items()
                        if given is not None
                    ],
                }
            ],
        }
    )


def cluster_of(
    case: JSON, config: str, plugin: type[Plugin], others: Sequence[object] = ()
) -> Cluster:
    """The nodes and the assigned pods of a case, and other objects."""
    nodes = [node_from(manifest) for manifest in case["nodes"]]
    pods = [pod_from(manifest) for manifest in case["pods"]]
    assigned = [pod for pod in pods if pod.spec.node_name]
    return Cluster([*nodes, *assigned, *others], config, plugins=[plugin])


def nodes_of(cluster: Cluster, case: JSON) -> NodeColumns:
    """The nodes in the order of the case."""
    table = cluster.assembly.table
    rows = [table.row_of[node["metadata"]["name"]] for node in case["nodes"]]
    return NodeColumns(table, np.array(rows, dtype=np.intp))


def status_json(status: Status | None) -> JSON:
    if status is None:
        return {"code": "Success", "reasons": []}
    return {
        "code": Code(status.code).upstream_name,
        "reasons": [reason for reason in status.all_reasons if reason],
    }
