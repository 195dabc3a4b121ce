"""Small traces and configurations for tests of replays."""

from __future__ import annotations

import csv
from pathlib import Path
from random import Random

from kubesched.config.load import load
from kubesched.lab.traces.openb import NODE_COLUMNS, POD_COLUMNS

SAMPLES = Path(__file__).parents[2] / "examples" / "traces"


def strategy(kind: str):
    """A configuration whose NodeResourcesFit scores with this strategy."""
    return load(configuration(kind).encode())


def configuration(kind: str) -> str:
    return f"""\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: {kind}
        resources: [{{name: cpu, weight: 1}}, {{name: memory, weight: 1}}]
  plugins:
    multiPoint:
      disabled: [{{name: NodeResourcesBalancedAllocation}}, {{name: PodTopologySpread}}]
"""


def write_openb(folder: Path, seed: int, nodes: int = 12, pods: int = 60) -> list[str]:
    """A random trace in openb's columns, with pods that share GPUs."""
    rng = Random(seed)
    paths = [folder / "nodes.csv", folder / "pods.csv"]
    with paths[0].open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(NODE_COLUMNS)
        for number in range(nodes):
            gpus = rng.choice((0, 2, 4))
            writer.writerow([f"n-{number}", 32_000, 131_072, gpus, "T4" if gpus else ""])
    with paths[1].open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(POD_COLUMNS)
        for number in range(pods):
            gpus = rng.choice((0, 0, 1, 1, 1, 2))
            milli = rng.choice((200, 500, 700, 1000)) if gpus == 1 else 1000 * bool(gpus)
            created = rng.randrange(1000)
            end = created + rng.randrange(50, 900)
            row = [f"p-{number}", rng.choice((1000, 4000, 9000)), 4096, gpus, milli, ""]
            writer.writerow([*row, created, end, created])
    return [str(path) for path in paths]
