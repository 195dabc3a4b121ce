"""What `kubesched run` spends per pod beside an API server that costs nothing.

    python benchmarks/process.py [--nodes 1000] [--pods 20000] [--plain] [--json] [--profile]

The real command runs against `null_server.py` in a process of its own. Counted is the processor
time of the scheduler's process alone, from the moment the pods begin to appear until every pod is
bound and every event has been written; reading the pods, decoding and answering their bindings and
the metrics are all in it. Pods per second are those of one core, that is per second of that
processor time; `clock` is what the clock shows while other work shares the machine.

`--profile` runs it once more under cProfile and prints which packages and functions the time goes
to. The profiler makes Python functions look dearer than C ones: compare shares, not microseconds.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from client import TOKEN, make_certificate

HERE = Path(__file__).parent
PROTOBUF, JSON = "application/vnd.kubernetes.protobuf", "application/json"
PATIENCE_S = 120.0
PROFILE_ON, PROFILE_OFF = signal.SIGRTMIN, signal.SIGRTMIN + 1
LOOP = "(event loop)"
WATCH_SETTLE_S = 1.0
"""Other collections are watched within this time after pods are."""


@dataclass(frozen=True)
class CpuTime:
    """Seconds of processor time of all threads of a process."""

    user_s: float
    system_s: float

    @classmethod
    def of(cls, pid: int) -> CpuTime:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks = os.sysconf("SC_CLK_TCK")
        return cls(int(fields[11]) / ticks, int(fields[12]) / ticks)

    def __sub__(self, other: CpuTime) -> CpuTime:
        return CpuTime(self.user_s - other.user_s, self.system_s - other.system_s)

    @property
    def total_s(self) -> float:
        return self.user_s + self.system_s


@dataclass(frozen=True)
class Result:
    """What one run took, by the time of the last binding and of the last event."""

    pods: int
    bound_s: float
    bound_cpu: CpuTime
    done_s: float
    done_cpu: CpuTime

    def __str__(self) -> str:
        micros = self.done_cpu.total_s / self.pods * 1e6
        return (
            f"{micros:6.0f} µs of CPU per pod, {1e6 / micros:6.0f} pods/s per core"
            f"   of it system: {self.done_cpu.system_s / self.pods * 1e6:.0f} µs"
            f"   until bound: {self.bound_cpu.total_s / self.pods * 1e6:.0f} µs"
            f"   clock: {self.pods / self.bound_s:.0f} bound/s, {self.pods / self.done_s:.0f} "
            "done/s"
        )


def write_files(folder: Path, port: int, ca_file: str, arguments: argparse.Namespace) -> Path:
    scheme = "http" if arguments.plain else "https"
    cluster: dict[str, Any] = {"server": f"{scheme}://127.0.0.1:{port}"}
    if not arguments.plain:
        cluster["certificate-authority"] = ca_file
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "null", "cluster": cluster}],
        "users": [{"name": "null", "user": {"token": TOKEN}}],
        "contexts": [{"name": "null", "context": {"cluster": "null", "user": "null"}}],
        "current-context": "null",
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(folder / "kubeconfig"),
            "contentType": JSON if arguments.json else PROTOBUF,
            "qps": 100_000,
            "burst": 100_000,
        },
    }
    (folder / "scheduler.yaml").write_text(yaml.safe_dump(config))
    return folder / "scheduler.yaml"


def run_once(arguments: argparse.Namespace, profile: Path | None = None) -> Result:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certificate, key = make_certificate(folder)
        server_command = [sys.executable, str(HERE / "null_server.py")]
        for option in ("nodes", "pods", "templates", "window"):
            server_command += [f"--{option}", str(getattr(arguments, option))]
        if not arguments.plain:
            server_command += ["--certificate", certificate, "--key", key]
        server = subprocess.Popen(
            server_command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        scheduler: subprocess.Popen[bytes] | None = None
        try:
            port = int(said(server, "ready").split()[1])
            config = write_files(folder, port, certificate, arguments)
            command = [sys.executable]
            if profile is None:
                command += ["-m", "kubesched"]
            else:
                command += [__file__, "--profiled", str(profile)]
            command += ["run", f"--config={config}", "--secure-port=0", "-v=0"]
            scheduler = subprocess.Popen(command)
            return measure(server, scheduler, arguments.pods, is_profiled=profile is not None)
        finally:
            if scheduler is not None:
                scheduler.terminate()
                scheduler.wait()
            assert server.stdin is not None
            server.stdin.close()
            server.wait()


def measure(
    server: subprocess.Popen[bytes],
    scheduler: subprocess.Popen[bytes],
    pods: int,
    *,
    is_profiled: bool,
) -> Result:
    assert server.stdin is not None
    pid = scheduler.pid
    said(server, "watched")
    time.sleep(WATCH_SETTLE_S)
    if is_profiled:
        scheduler.send_signal(PROFILE_ON)
    cpu_before, began = CpuTime.of(pid), time.monotonic()
    server.stdin.write(b"go\n")
    said(server, "bound")
    bound_cpu, bound = CpuTime.of(pid), time.monotonic()
    said(server, "done")
    done_cpu, done = CpuTime.of(pid), time.monotonic()
    if is_profiled:
        scheduler.send_signal(PROFILE_OFF)
    return Result(pods, bound - began, bound_cpu - cpu_before, done - began, done_cpu - cpu_before)


def said(server: subprocess.Popen[bytes], what: str, patience_s: float = PATIENCE_S) -> str:
    """The next line of the server, which has to begin so."""
    assert server.stdout is not None
    if not select.select([server.stdout], [], [], patience_s)[0]:
        raise SystemExit(f"the server did not say {what} within {patience_s:.0f} s")
    line = server.stdout.readline().decode()  # unbuffered, or else select would miss lines
    if not line.startswith(what):
        raise SystemExit(f"the server said {line!r} instead of {what}")
    return line


def run_profiled(path: str, arguments: list[str]) -> None:
    """The child of `--profile`: kubesched, profiled from one signal to the other."""
    from kubesched.app.cli.main import main as kubesched

    profiler = cProfile.Profile()
    signal.signal(PROFILE_ON, lambda *_: profiler.enable())
    signal.signal(PROFILE_OFF, lambda *_: (profiler.disable(), profiler.dump_stats(path)))
    sys.exit(kubesched(arguments))


def layer(function: tuple[str, int, str]) -> str:
    """Which package a profiled function belongs to; built-in ones have none of their own."""
    path = function[0]
    if "/kubesched/" in path:
        return "kubesched." + path.rpartition("/kubesched/")[2].split("/")[0].removesuffix(".py")
    return "" if path == "~" else path.rpartition("/lib/")[2].split("/")[-1]


def breakdown(profile: Path, pods: int, top: int) -> None:
    """Self time by package, built-in functions counted to their callers, and the largest functions
    with calls per pod.
    """
    stats = pstats.Stats(str(profile)).stats  # type: ignore[attr-defined]  # not in typeshed
    by_layer: Counter[str] = Counter()
    by_function: Counter[str] = Counter()
    calls: Counter[str] = Counter()

    def count(owner: str, name: str, called: int, own: float) -> None:
        by_layer[owner] += own
        by_function[f"{owner}: {name}"] += own
        calls[owner] += called
        calls[f"{owner}: {name}"] += called

    for function, (_, called, own, _, callers) in stats.items():
        if layer(function) or not callers:
            count(layer(function) or LOOP, f"{function[2]}:{function[1]}", called, own)
            continue
        for caller, (_, called_by, part, _) in callers.items():
            count(layer(caller) or LOOP, f"{caller[2]} > {function[2]}", called_by, part)
    total = sum(by_layer.values())
    for title, counted in (("package", by_layer), ("function", by_function)):
        print(f"\n{'share':>6}{'calls/pod':>11}  {title}")
        for name, own in counted.most_common(top):
            print(f"{own / total:>6.1%}{calls[name] / pods:>11.1f}  {name}")


def main() -> None:
    if sys.argv[1:2] == ["--profiled"]:
        run_profiled(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--templates", type=int, default=1, help="apps that pods belong to in turn")
    parser.add_argument("--window", type=int, default=1000, help="pods unbound at a time")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="HTTP without TLS")
    parser.add_argument("--json", action="store_true", help="bindings and events as JSON")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--top", type=int, default=40, help="lines of the profile")
    arguments = parser.parse_args()
    for _ in range(arguments.repeat):
        print(run_once(arguments), flush=True)
    if arguments.profile:
        with tempfile.TemporaryDirectory() as folder:
            profile = Path(folder) / "profile"
            run_once(arguments, profile)
            breakdown(profile, arguments.pods, arguments.top)


if __name__ == "__main__":
    main()
