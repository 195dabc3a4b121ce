"""Compares the policy with the default profile on traces that it was not trained on.

python evaluate.py [--seeds 20] [--executor local:2]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from learned_policy import LearnedPolicy

import kubesched as ks

HELD_OUT = 1_000_000
"""Traces of training have seeds below this."""
ALONE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {{score: {{disabled: [{{name: "*"}}], enabled: [{{name: {name}}}]}}}}
  pluginConfig: [{{name: {name}, args: {args}}}]
"""
PACKING = ALONE.format(
    name="NodeResourcesFit",
    args="{scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}",
)
SHOWN = ("placed", "waitP90", "waitP99", "nodesUsed", "evictions")


def held_out_trace(seed):
    return ks.sample_trace(nodes=20, pods=400, hours=12, seed=HELD_OUT + seed)


def evaluated(weights, seeds=20, trace=held_out_trace, executor="local:1"):
    """The default profile, plain packing and the policy, each on the same traces."""
    learned = ALONE.format(name="LearnedPolicy", args=f"{{weights: {weights}}}")
    configs = {"default": None, "packing": PACKING, "learned": learned}
    return ks.compare(configs, trace, seeds=seeds, plugins=[LearnedPolicy], executor=executor)


def lines(compared):
    """Each configuration's figures and, seed by seed, how they differ from the default's."""
    figures = {(row["config"], row["figure"]): row for row in compared.figures.rows()}
    differ = {(row["config"], row["figure"]): row for row in compared.differences.rows()}
    yield f"{'':10}{'default':>9}" + "".join(f"{name:>36}" for name in ("packing", "learned"))
    for figure in SHOWN:
        line = f"{figure:10}{figures['default', figure]['mean']:9.1f}"
        for name in ("packing", "learned"):
            row = differ[name, figure]
            bounds = f"({row['mean']:+.1f}, {row['low']:+.1f} to {row['high']:+.1f})"
            shown = "*" if row["shown"] else " "
            line += f"{figures[name, figure]['mean']:9.1f} {bounds:>25}{shown}"
        yield line
    yield "in brackets: the difference to the default and its 95 % interval; * if it excludes 0"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", default=str(Path(__file__).with_name("weights.json")))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--executor", default="local:1")
    options = parser.parse_args()
    found = evaluated(options.weights, options.seeds, executor=options.executor)
    print("\n".join(lines(found)))  # noqa: T201  # a program
