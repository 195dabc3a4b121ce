"""The library's figures: import, a cluster, a schedule, tables as Arrow, steps of an environment.

python benchmarks/library.py [import] [cluster] [schedule] [arrow] [steps]

CPU time, the median of five rounds (import: of processes of their own). Arrow needs
`kubesched[data]`, steps need `kubesched[gym]`.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from time import process_time

import kubesched as ks

ROUNDS = 5
STEPS = 5_000


def import_s() -> float:
    code = "from time import process_time as t; b = t(); import kubesched; print(t() - b)"
    return float(subprocess.check_output([sys.executable, "-c", code], text=True))


def cluster_s() -> float:
    began = process_time()
    ks.Cluster(ks.nodes(1_000, cpu=32, memory="128Gi", zones=3)).close()
    return process_time() - began


def _schedule(nodes: int, pods: int) -> tuple[float, ks.Result]:
    cluster = ks.Cluster(ks.nodes(nodes, cpu=32, memory="128Gi", zones=3))
    wanted = ks.pods(pods, cpu="500m", memory="1Gi")
    began = process_time()
    result = cluster.schedule(wanted)
    return process_time() - began, result


def schedule_s() -> float:
    return _schedule(1_000, 5_000)[0]


def arrow() -> Callable[[], float]:
    import pyarrow

    placements = _schedule(2_000, 100_000)[1].placements

    def measured_s() -> float:
        began = process_time()
        pyarrow.table(placements)
        return process_time() - began

    return measured_s


def steps() -> Callable[[], float]:
    import gymnasium

    import kubesched.gym  # noqa: F401  # registers the environments

    trace = ks.sample_trace(nodes=1_500, pods=20_000, hours=24, seed=1)
    environment = gymnasium.make("kubesched/Placement-v0", trace=trace, features=("free",))

    def measured_s() -> float:
        _observation, info = environment.reset(seed=1)
        began = process_time()
        for _ in range(STEPS):
            action = int(info["action_mask"].argmax())
            _observation, _reward, _ended, _cut, info = environment.step(action)
        return process_time() - began

    return measured_s


CASES: dict[str, Callable[[], Callable[[], float]]] = {
    "import": lambda: import_s,
    "cluster": lambda: cluster_s,
    "schedule": lambda: schedule_s,
    "arrow": arrow,
    "steps": steps,
}
COUNTS = {"schedule": 5_000, "steps": STEPS}


def main() -> None:
    for name in sys.argv[1:] or CASES:
        measured_s = CASES[name]()
        times_s = [measured_s() for _ in range(ROUNDS)]
        median_s = statistics.median(times_s)
        rate = f", {COUNTS[name] / median_s:,.0f}/s" if name in COUNTS else ""
        print(f"{name}: {median_s * 1000:,.1f} ms ({min(times_s) * 1000:,.1f} to", end=" ")
        print(f"{max(times_s) * 1000:,.1f}){rate}", flush=True)


if __name__ == "__main__":
    main()
