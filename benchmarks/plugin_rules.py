"""What a plugin's rule is worth: CPU per decision with one more filter, with and without it.

python benchmarks/plugin_rules.py [NODES ...]
"""

from __future__ import annotations

import sys
from random import Random
from time import thread_time

from frameworks import default_framework

from kubesched.framework import CycleState, FilterPlugin, Rule, Scope, Verdicts, unschedulable
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.scheduler.algorithm import ScheduleResult, SchedulingAlgorithm
from kubesched.scheduler.classes import ClassEngine
from kubesched.testing import make_node, make_pod

NO_RACK = unschedulable("node(s) had no rack")
ROUNDS = 3


class Columns(FilterPlugin):
    name = "Columns"

    def filter_nodes(self, state, pod, nodes):
        return Verdicts.reject(nodes.label_ids("rack") < 0, NO_RACK)


class ColumnsWithRule(Columns):
    name = "ColumnsWithRule"

    def filter_rule(self, state, pod):
        return Rule(Scope.NODE)


class OneNode(FilterPlugin):
    name = "OneNode"

    def filter(self, state, pod, node_info):
        return None if "rack" in node_info.node.metadata.labels else NO_RACK


class OneNodeWithRule(OneNode):
    name = "OneNodeWithRule"

    def filter_rule(self, state, pod):
        return Rule(Scope.NODE)


CASES = {
    "no further plugin": (None, 300),
    "columns, with a rule": (ColumnsWithRule, 300),
    "columns, no rule": (Columns, 300),
    "one node at a time, with a rule": (OneNodeWithRule, 300),
    "one node at a time, no rule": (OneNode, 20),
}


def measure(node_count: int, plugin: type[FilterPlugin] | None, pods: int) -> float:
    """Best of a few rounds, in µs of CPU per decision, counting the pod on its node included."""
    table = NodeTable()
    for number in range(node_count):
        node = make_node(f"node-{number}").label("rack", "a")
        table.set_node(node.capacity(cpu="64", memory="256Gi", pods="110").build())
    framework = default_framework(table)
    if plugin is not None:
        framework.filter.append(plugin(None, framework.handle))
    algorithm = SchedulingAlgorithm(table, Random(1), engine=ClassEngine(table))
    best = float("inf")
    for turn in range(ROUNDS):
        made = [PodInfo(make_pod(f"p-{turn}-{n}").cpu("10m").build()) for n in range(pods)]
        started = thread_time()
        for pod in made:
            result = algorithm.schedule(framework, CycleState(), pod)
            assert isinstance(result, ScheduleResult)
            table.add_pod(pod.assumed_on(result.node_name), result.node_name)
        best = min(best, (thread_time() - started) / pods * 1e6)
    return best


def main() -> None:
    sizes = [int(text) for text in sys.argv[1:]] or [1000, 5000]
    for title, (plugin, pods) in CASES.items():
        figures = "  ".join(f"{measure(size, plugin, pods):>9,.0f}" for size in sizes)
        print(f"{title:<34}{figures}   µs per pod at {', '.join(map(str, sizes))} nodes")


if __name__ == "__main__":
    main()
