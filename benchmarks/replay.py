"""Time of `kubesched replay` over a trace of openb's size, and the gain from a second worker.

    python benchmarks/replay.py [NODES PODS]             one cell, on one core (default: 1523 8152)
    python benchmarks/replay.py --write DIR              only write the two CSV files
    python benchmarks/replay.py --sweep                  64 cells with one local worker, then with
                                                         two

The trace is generated in the shape that openb publishes: its columns, about its mix of nodes and of
pods that share GPUs, its 150 days. CPU seconds are of this process; on a busy machine the clock
shows more.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from pathlib import Path
from random import Random
from time import perf_counter, process_time

from kubesched.config.load import default_config
from kubesched.lab.sweeps.executors import LocalProcesses
from kubesched.lab.sweeps.store import ResultStore
from kubesched.lab.sweeps.sweep import run_sweep
from kubesched.lab.traces.cells import keyed, play_cell
from kubesched.lab.traces.openb import NODE_COLUMNS, POD_COLUMNS, read
from kubesched.lab.traces.player import Cell, play_trace

SPAN_S = 12_900_000
"""About as long as openb."""
NODES = (  # share, cpu_milli, memory_mib, gpus, model
    (0.20, 96_000, 393_216, 0, ""),
    (0.10, 96_000, 393_216, 2, "P100"),
    (0.15, 64_000, 262_144, 2, "T4"),
    (0.15, 96_000, 393_216, 4, "G2"),
    (0.10, 96_000, 786_432, 8, "V100M32"),
    (0.10, 64_000, 524_288, 8, "V100M16"),
    (0.20, 128_000, 786_432, 8, "G3"),
)
PODS = (  # share, cpu_milli, memory_mib, num_gpu, gpu_milli
    (0.13, 8_000, 30_517, 0, 0),
    (0.06, 3_152, 3_600, 1, 300),
    (0.12, 4_000, 15_258, 1, 500),
    (0.10, 6_000, 12_288, 1, 460),
    (0.10, 5_000, 10_240, 1, 750),
    (0.20, 8_000, 30_517, 1, 1000),
    (0.18, 12_000, 49_152, 1, 1000),
    (0.04, 16_000, 61_035, 2, 1000),
    (0.03, 32_000, 122_070, 4, 1000),
    (0.04, 88_000, 327_680, 8, 1000),
)


def write_trace(folder: Path, node_count: int, pod_count: int, seed: int = 1) -> tuple[str, str]:
    rng = Random(seed)
    nodes, pods = folder / "openb_node_list.csv", folder / "openb_pod_list.csv"
    with nodes.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(NODE_COLUMNS)
        for number in range(node_count):
            _, cpu, memory, gpus, model = chosen(rng, NODES)
            writer.writerow([f"openb-node-{number:04}", cpu, memory, gpus, model])
    with pods.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*POD_COLUMNS, "qos", "pod_phase"])
        for number in range(pod_count):
            _, cpu, memory, count, milli = chosen(rng, PODS)
            # Most of openb's pods come in its last third, and live long enough to fill it.
            created = int(SPAN_S * (rng.random() ** 0.35))
            lifetime = int(min(rng.lognormvariate(13.6, 1.2), 6_000_000)) + 1
            spec = "V100M16|V100M32" if count and rng.random() < 0.05 else ""
            end = created + lifetime
            row = [f"openb-pod-{number:04}", cpu, memory, count, milli, spec, created, end, created]
            writer.writerow([*row, rng.choice(("LS", "BE", "Burstable")), "Running"])
    return str(nodes), str(pods)


def chosen(rng: Random, table):
    return rng.choices(table, weights=[row[0] for row in table])[0]


def one_cell(node_count: int, pod_count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = write_trace(Path(folder), node_count, pod_count)
        cpu, clock = process_time(), perf_counter()
        trace = read(*files)
        read_s = process_time() - cpu
        outcome = play_trace(trace, Cell(name="default", config=default_config()))
        total_s = process_time() - cpu
        print(
            f"{node_count} nodes, {outcome.submitted} pods: {total_s:.2f} s cpu ({read_s:.2f} s "
            "of it reading), "
            f"{perf_counter() - clock:.2f} s clock"
        )
        print(
            f"placed {outcome.placed}, unplaced {outcome.unplaced}, {outcome.attempts} attempts, "
            f"waits p99 {outcome.waits.p99:.0f} s, nodes used {outcome.nodes_used:.0f}, "
            f"gpu {outcome.utilisation['alibabacloud.com/gpu-milli']:.1%}, "
            f"fragmentation {outcome.gpu_fragmentation:.1%}"
        )


def sweep(cell_count: int = 64) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trace = read(*write_trace(Path(folder), 100, 500))
    cells = [
        keyed(trace, Cell(name="default", config=default_config(), seed=seed))
        for seed in range(cell_count)
    ]
    took = {}
    for workers in (1, 2):
        clock = perf_counter()
        executor = LocalProcesses(workers)
        results = list(run_sweep(play_cell, trace, cells, executor, ResultStore(None)))
        took[workers] = perf_counter() - clock
        assert all(result.data for result in results)
        print(f"{cell_count} cells, {workers} workers: {took[workers]:.1f} s clock")
    print(f"two workers are {took[1] / took[2]:.2f} times as fast")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("size", nargs="*", type=int, default=[1523, 8152])
    parser.add_argument("--write", metavar="DIR")
    parser.add_argument("--sweep", action="store_true")
    args = parser.parse_args()
    if args.sweep:
        sweep()
        return
    if args.write:
        Path(args.write).mkdir(parents=True, exist_ok=True)
        print(*write_trace(Path(args.write), *args.size))
        return
    one_cell(*args.size)


if __name__ == "__main__":
    main()
