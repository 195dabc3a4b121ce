"""Two schedulers for an hour under churn: does anything grow, get slower, or stay behind?

    python benchmarks/soak.py [--minutes 60] [--rate 50] [--control-plane embedded|real] [--output
        DIR]

Pods are created at a steady rate and the oldest deleted, so that their number stays the same. Every
two seconds a node is cordoned, tainted, uncordoned, or deleted and made anew. Every 28 minutes the
leading scheduler is ended (SIGKILL and SIGTERM in turn) and started again, so that the other one
takes over. One that ends by itself, as after losing its lease, is started again as a kubelet would,
and counted. Every ten seconds each scheduler is looked at: resident memory, asyncio tasks,
descriptors, threads; and the latency from creation to binding as a watch sees it.

`DIR` gets `samples.csv`, `latencies.csv` and `soak.svg`. The exit code is 1 if pods are left
unbound at the end, or if memory, tasks or descriptors of a scheduler grow: over spells of twenty
minutes and more in which it leads or stands by, the median of the last quarter is held against that
of the second. A leader's caches take a quarter of an hour to fill, so shorter spells say nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import csv
import json
import os
import signal
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import yaml
from run_process import CONTROL_PLANES, Server, client_of, create_all, node, pod

from kubesched.api.core_v1.node import Node
from kubesched.api.core_v1.pod import Pod
from kubesched.api.meta import DeleteOptions
from kubesched.base.errors import ApiError, TransportError
from kubesched.client.pool import PoolSettings
from kubesched.client.rest import RestClient

NODES = 300
LIVE_PODS = 3_000
SAMPLE_S = 10.0
FLAP_S = 2.0
GROWTH_ALLOWED = 1.15
CONNECTIONS = PoolSettings().max_connections
SLACK = {"rss_mb": 8.0, "tasks": 20.0, "fds": CONNECTIONS, "threads": 3.0}
"""Differences that are noise whatever the ratio: connections come and go with the load."""
STABLE_SPELL_S = 1200.0
DRAIN_S = 120
AT_ONCE = DeleteOptions(grace_period_seconds=0)
PODS = "/api/v1/namespaces/default/pods"


@dataclass(slots=True)
class Sample:
    """One look at one scheduler."""

    at_s: float
    scheduler: str
    life: int
    rss_mb: float
    fds: float
    threads: float
    tasks: float
    cpu_s: float
    leads: bool


@dataclass(slots=True)
class Scheduler:
    """One of the two: a process that is ended and started again under the same name."""

    name: str
    config: Path
    folder: Path
    port: int
    process: asyncio.subprocess.Process | None = None
    life: int = 0
    ended_by_itself: int = 0
    is_being_replaced: bool = False

    async def start(self) -> None:
        self.life += 1
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "kubesched", "run", f"--config={self.config}", "-v=1"),
                f"--secure-port={self.port}",
                "--bind-address=127.0.0.1",
                "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
                stdout=log,
                stderr=log,
            )

    async def end(self, how: signal.Signals) -> None:
        if self.process is None or self.process.returncode is not None:
            return
        self.process.send_signal(how)
        try:
            await asyncio.wait_for(self.process.wait(), 30.0)
        except TimeoutError:
            raise SystemExit(f"{self.name} did not end within 30 s of {how.name}") from None

    async def replace(self, how: signal.Signals) -> None:
        self.is_being_replaced = True
        await self.end(how)
        await self.start()
        self.is_being_replaced = False

    async def revive(self) -> None:
        """Start it again if it has ended by itself."""
        if self.is_being_replaced or self.process is None or self.process.returncode is None:
            return
        print(f"{self.name} has ended by itself: exit code {self.process.returncode}", flush=True)
        self.ended_by_itself += 1
        await self.start()

    async def sample(self, at_s: float) -> Sample | None:
        """What /proc and the metrics page say; None while it starts."""
        if self.process is None or self.process.returncode is not None:
            return None
        try:
            page = await asyncio.wait_for(metrics_page(self.port), 30.0)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return None
        values = {
            line.split(" ")[0]: float(line.rsplit(" ", 1)[1])
            for line in page.splitlines()
            if line.startswith(("process_", "kubesched_tasks", "leader_election_master_status"))
        }
        return Sample(
            at_s=at_s,
            scheduler=self.name,
            life=self.life,
            rss_mb=values["process_resident_memory_bytes"] / 2**20,
            fds=values["process_open_fds"],
            threads=thread_count(self.process.pid),
            tasks=values["kubesched_tasks"],
            cpu_s=values["process_cpu_seconds_total"],
            leads=any(v == 1 for k, v in values.items() if k.startswith("leader_election")),
        )


def thread_count(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("Threads:"))
    return float(line.split()[1])


async def metrics_page(port: int) -> str:
    """One request on a connection of its own: a kept one would be a descriptor of the scheduler."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # self-signed, on loopback
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return (await reader.read()).decode()
    finally:
        writer.close()


@dataclass(slots=True)
class Churn:
    """Makes pods and takes them away, and notes when each was bound."""

    client: RestClient
    rate: float
    random: Random = field(default_factory=lambda: Random(1))
    created: dict[str, float] = field(default_factory=dict)
    """When each pod that is not bound yet was created."""
    alive: deque[str] = field(default_factory=deque)
    latencies: list[tuple[float, float]] = field(default_factory=list)
    """When a pod was bound, and how long after its creation."""
    made: int = 0
    refused: int = 0

    async def create(self, until: float, began: float) -> None:
        due = began
        while time.monotonic() < until:
            batch = 0
            while due <= time.monotonic():
                due += 1 / self.rate
                batch += 1
            if batch:
                await asyncio.gather(*(self._replace() for _ in range(min(batch, 100))))
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _replace(self) -> None:
        made = pod(self.made)
        self.made += 1
        name = made["metadata"]["name"]
        self.created[name] = time.monotonic()
        await self._try(self.client.post_raw(PODS, json.dumps(made).encode()))
        self.alive.append(name)
        if len(self.alive) > LIVE_PODS:
            gone = self.alive.popleft()
            self.created.pop(gone, None)
            await self._try(self.client.delete(Pod, gone, "default", AT_ONCE))

    async def _try(self, request: Any) -> None:
        try:
            await request
        except (ApiError, TransportError):
            self.refused += 1

    async def watch(self, began: float) -> None:
        """Notes bindings; a watch that ends is followed by one from the last change it showed."""
        version = ""
        while True:
            if not version:
                version = (await self.client.list_page(Pod, limit=1)).metadata.resource_version
            try:
                async with self.client.watch(Pod, resource_version=version) as events:
                    async for event in events:
                        version = event.object.metadata.resource_version
                        self._note(event.object, began)
            except (ApiError, TransportError):
                self.refused += 1
                version = ""
                await asyncio.sleep(1.0)

    def _note(self, changed: Any, began: float) -> None:
        if isinstance(changed, Pod) and changed.spec.node_name:
            since = self.created.pop(changed.metadata.name, None)
            if since is not None:
                now = time.monotonic()
                self.latencies.append((now - began, now - since))

    async def flap(self) -> None:
        """Nodes come, go, are cordoned and tainted."""
        while True:
            await asyncio.sleep(FLAP_S)
            name = f"node-{self.random.randrange(NODES):05d}"
            path = f"/api/v1/nodes/{name}"
            kind = self.random.choice(("cordon", "taint", "clear", "clear", "replace"))
            changed = self._recreate(name) if kind == "replace" else self._set_spec(path, kind)
            await self._try(changed)

    async def _set_spec(self, path: str, kind: str) -> None:
        found = json.loads(await self.client.get_raw(path))
        found["spec"]["unschedulable"] = kind == "cordon"
        taint = {"key": "example.com/soak", "effect": "NoSchedule"}
        found["spec"]["taints"] = [taint] if kind == "taint" else []
        await self.client.put_raw(path, json.dumps(found).encode())

    async def _recreate(self, name: str) -> None:
        await self.client.delete(Node, name)
        await create_all(self.client, "/api/v1/nodes", iter([node(int(name[-5:]))]))


async def change_leaders(schedulers: list[Scheduler], every_s: float) -> None:
    """Whoever leads is ended and started again, as a crash and as a rollout in turn."""
    turn = 0
    while True:
        await asyncio.sleep(every_s)
        looked = [await one.sample(0.0) for one in schedulers]
        leading = [
            one
            for one, found in zip(schedulers, looked, strict=True)
            if found is not None and found.leads
        ]
        for one in leading[:1]:
            how = signal.SIGKILL if turn % 2 == 0 else signal.SIGTERM
            print(f"{how.name} to {one.name}", flush=True)
            await one.replace(how)
        turn += 1


def growth(samples: list[Sample]) -> list[str]:
    """Medians of the second and of the last quarter of every spell of leading or standing by that
    was long enough.
    """
    told = []
    spells: dict[tuple[str, int, bool], list[Sample]] = {}
    for sample in samples:
        spells.setdefault((sample.scheduler, sample.life, sample.leads), []).append(sample)
    for (name, life, leads), looks in sorted(spells.items()):
        length = looks[-1].at_s - looks[0].at_s
        if length < STABLE_SPELL_S:
            continue
        role = "leading" if leads else "standing by"
        quarter = len(looks) // 4
        for what, slack in SLACK.items():
            early = statistics.median(getattr(s, what) for s in looks[quarter : 2 * quarter])
            late = statistics.median(getattr(s, what) for s in looks[-quarter:])
            grew = late > early * GROWTH_ALLOWED and late > early + slack
            verdict = "GROWS" if grew else "ok"
            told.append(
                f"{name} life {life} {role} ({length / 60:.0f} min) {what:<8} {early:8.1f} -> "
                f"{late:8.1f}  {verdict}"
            )
    return told


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def minutes(latencies: list[tuple[float, float]]) -> dict[int, list[float]]:
    by_minute: dict[int, list[float]] = {}
    for at_s, took in latencies:
        by_minute.setdefault(int(at_s // 60), []).append(took)
    return by_minute


def write(folder: Path, samples: list[Sample], churn: Churn) -> None:
    names = list(Sample.__slots__)
    with (folder / "samples.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(names)
        rows.writerows([getattr(sample, name) for name in names] for sample in samples)
    with (folder / "latencies.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["minute", "bound", "p50_ms", "p99_ms", "highest_ms"])
        for minute, took in sorted(minutes(churn.latencies).items()):
            figures = (percentile(took, 0.5), percentile(took, 0.99), max(took))
            rows.writerow([minute, len(took), *(f"{1000 * value:.1f}" for value in figures)])
    (folder / "soak.svg").write_text(plot(samples, churn))


def plot(samples: list[Sample], churn: Churn) -> str:
    """Four courses over time, one below the other."""
    width, height, left = 900, 130, 70
    end = max([s.at_s for s in samples] or [1.0])
    parts = []

    def course(index: int, title: str, lines: dict[str, list[tuple[float, float]]]) -> None:
        top = 30 + index * (height + 40)
        highest = max([y for line in lines.values() for _, y in line] or [1.0]) or 1.0
        parts.append(f'<text x="{left}" y="{top - 8}">{title}</text>')
        parts.append(f'<text x="{left - 8}" y="{top + 10}" text-anchor="end">{highest:.0f}</text>')
        parts.append(f'<text x="{left - 8}" y="{top + height}" text-anchor="end">0</text>')
        parts.append(f'<path d="M{left} {top}V{top + height}H{width}" class="axis"/>')
        for colour, line in zip(("a", "b"), lines.values(), strict=False):
            points = " ".join(
                f"{left + (width - left) * x / end:.1f},{top + height * (1 - y / highest):.1f}"
                for x, y in line
            )
            parts.append(f'<polyline points="{points}" class="{colour}"/>')

    names = sorted({sample.scheduler for sample in samples})
    titles = {"rss_mb": "resident memory, MB", "tasks": "asyncio tasks", "fds": "descriptors"}
    for index, (what, title) in enumerate(titles.items()):
        lines = {
            name: [(s.at_s, getattr(s, what)) for s in samples if s.scheduler == name]
            for name in names
        }
        course(index, f"{title} ({', '.join(names)})", lines)
    by_minute = sorted(minutes(churn.latencies).items())
    latency = {
        share: [(60.0 * m + 30, 1000 * percentile(took, share)) for m, took in by_minute]
        for share in (0.5, 0.99)
    }
    course(3, "creation to binding, ms (p50, p99)", {str(k): v for k, v in latency.items()})
    style = (
        "text{font:12px system-ui,sans-serif} .axis{fill:none;stroke:#999} "
        "polyline{fill:none;stroke-width:1.3} .a{stroke:#1f63d6} .b{stroke:#c8590f}"
    )
    total = 30 + 4 * (height + 40)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + 20} {total}">'
        f"<style>{style}</style>{''.join(parts)}</svg>\n"
    )


@contextlib.asynccontextmanager
async def schedulers(folder: Path, server: Server) -> AsyncIterator[list[Scheduler]]:
    config = folder / "scheduler.yaml"
    settings = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {
            "kubeconfig": str(server.scheduler_kubeconfig),
            "qps": 1000,
            "burst": 1000,
        },
    }
    config.write_text(yaml.safe_dump(settings))
    pair = [Scheduler(name, config, folder, free_port()) for name in ("first", "second")]
    try:
        for one in pair:
            await one.start()
        yield pair
    finally:
        for one in pair:
            await one.end(signal.SIGTERM)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def soak(arguments: argparse.Namespace, folder: Path) -> int:
    output = Path(arguments.output or folder)
    samples: list[Sample] = []
    async with (
        CONTROL_PLANES[arguments.control_plane](folder, NODES, 0, 0) as server,
        client_of(server.kubeconfig) as client,
        schedulers(output, server) as pair,
    ):
        churn = Churn(client, arguments.rate)
        began = time.monotonic()
        until = began + 60 * arguments.minutes

        async def look() -> None:
            while True:
                at_s = time.monotonic() - began
                for one in pair:
                    await one.revive()
                looks = [await one.sample(at_s) for one in pair]
                samples.extend(found for found in looks if found is not None)
                write(output, samples, churn)
                await asyncio.sleep(SAMPLE_S)

        background = [
            asyncio.ensure_future(work)
            for work in (
                churn.watch(began),
                churn.flap(),
                change_leaders(pair, 60 * arguments.leader_minutes),
                look(),
            )
        ]
        creating = asyncio.ensure_future(churn.create(until, began))
        done, _ = await asyncio.wait([creating, *background], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # a broken helper ends the run with its error
        for _ in range(DRAIN_S):
            if churn.created:
                await asyncio.sleep(1.0)
        for task in background:
            task.cancel()
        for outcome in await asyncio.gather(*background, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        write(output, samples, churn)
    return report(samples, churn, output, sum(one.ended_by_itself for one in pair))


def report(samples: list[Sample], churn: Churn, output: Path, ended: int) -> int:
    took = [latency for _, latency in churn.latencies]
    rate = len(took) / max(1.0, churn.latencies[-1][0]) if took else 0.0
    print(
        f"{churn.made} pods created, {len(took)} seen bound ({rate:.1f}/s), {churn.refused} "
        "requests refused"
    )
    print(f"left unbound: {len(churn.created)}; schedulers that ended by themselves: {ended}")
    shares = ", ".join(
        f"p{int(100 * s)} {1000 * percentile(took, s):.0f} ms" for s in (0.5, 0.9, 0.99)
    )
    print(f"creation to binding: {shares}, highest {max(took, default=0):.1f} s")
    told = growth(samples)
    print("\n".join(told) or "no life was long enough to judge growth")
    print(f"samples, latencies and plot: {output}")
    return 1 if churn.created or any("GROWS" in line for line in told) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=50.0, help="pods created per second")
    parser.add_argument("--leader-minutes", type=float, default=28.0)
    parser.add_argument("--control-plane", choices=CONTROL_PLANES, default="embedded")
    parser.add_argument("--output", default="", help="where samples and the plot go")
    arguments = parser.parse_args()
    if arguments.output:
        Path(arguments.output).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(soak(arguments, Path(folder)))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
