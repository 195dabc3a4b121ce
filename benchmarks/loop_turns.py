"""The longest turn of the scheduling loop in a large cluster, whatever happens to it.

    python benchmarks/loop_turns.py [--nodes 100000] [--running 100000] [--backlog 50000] [--settle
        20] [--only NAME ...] [--stacks]

`kubesched run` works beside a server of prepared bytes (`null_server.py`). A callback that runs in
every turn of its event loop takes the time since it last ran. After each of these, once the loop
has become quiet, is printed: the processor time of the longest turn (60 ms wanted), what the clock
showed in it, and the processor time of all turns of more than 20 ms, and of all turns, together.
With `--stacks` the functions that ran in turns of more than 20 ms are printed too, from samples
taken every 5 ms.

    assembly    configuration, plugins and connections, before the first request: one turn, in which
                nothing waits
    start       nodes and running pods are listed; the pods are of 16,000 sizes
    class       a pod of a new shape
    app         a hundred pods of a new app
    relist      nodes and pods are listed again, all of them changed: their watches ended with "too
                old resource version"
    pool        a tenth of the nodes is deleted at once
    backlog     pods in a hundred shapes that fit nowhere
    unique      as many pods with a label of their own each, which fit nowhere
    small node  a node that helps none of them
    large node  a node that takes some of them
    preemption  a pod that needs a whole node, and evicts another one for it
    preemptors  a hundred of them
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from client import pod_event
from null_server import (
    FIRST_POD_REVISION,
    STREAM_HEAD,
    Connection,
    NullServer,
    Pods,
    announce,
    chunk,
    encode,
)
from process import said, write_files
from run_process import node

from kubesched.app import event_loop

HERE = Path(__file__)
LONG_MS = 20.0
IDLE_MS = 0.3
"""A turn that takes less did nothing but measure itself."""
BUSY_MS = 2.0
QUIET_S = 4.0
"""Without a turn of more than `BUSY_MS` for so long, what happened has been dealt with."""
REPORT = signal.SIGRTMIN
PATIENCE_S = 600.0
SHAPES = 100
WRITTEN_AT_ONCE = 500
SAMPLE_S = 0.005
DEPTH = 12
MOST_FREQUENT = 12
NODES, PODS = b"/api/v1/nodes", b"/api/v1/pods"
NAME_SELECTOR = re.compile(rb"metadata\.name(?:=|%3D)([a-z0-9.-]+)")
ANSWER_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
EXPIRED = {
    "type": "ERROR",
    "object": {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": "too old resource version",
        "reason": "Expired",
        "code": 410,
    },
}


# -- the server ------------------------------------------------------------------------------------


class Cluster(NullServer):
    """Nodes and running pods to list, and changes to watch."""

    def __init__(self, nodes: int, running: int) -> None:
        super().__init__(0, Pods(1, 1), 1)
        self._nodes = nodes
        self._running = running
        self._made = 0
        self._pod = json.loads(pod_event(0))["object"]
        self._streams: dict[bytes, Connection] = {}
        self._newest: dict[bytes, dict[str, Any]] = {}  # the newest change of each collection
        self._lists: dict[bytes, asyncio.Task[None]] = {}
        self._may_list = asyncio.Event()
        self._is_asked = False

    # -- objects -----------------------------------------------------------------------------------

    def _pod_bytes(
        self, name: str, app: str, cpu: str, node_name: str = "", priority: int = 0
    ) -> bytes:
        pod = self._pod | {"metadata": self._pod["metadata"] | self._meta(name, {"app": app})}
        pod["spec"] = dict(pod["spec"])
        first = pod["spec"]["containers"][0]
        pod["spec"]["containers"] = [
            first | {"resources": {"requests": {"cpu": cpu, "memory": "100Mi"}}}
        ]
        pod["spec"]["priority"] = priority
        if node_name:
            pod["spec"]["nodeName"] = node_name
        return self._event_bytes(PODS, "ADDED", pod)

    def _meta(self, name: str, labels: dict[str, str]) -> dict[str, Any]:
        self.revision += 1
        return {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": str(self.revision),
            "labels": labels,
        }

    def _node_bytes(self, index: int, kind: str = "ADDED", cpu: str = "") -> bytes:
        made = node(index)
        self.revision += 1
        made["metadata"] |= {"uid": f"node-uid-{index}", "resourceVersion": str(self.revision)}
        if cpu:
            made["status"]["allocatable"] = made["status"]["allocatable"] | {"cpu": cpu}
            made["status"]["capacity"] = made["status"]["capacity"] | {"cpu": cpu}
        return self._event_bytes(NODES, kind, made)

    def _event_bytes(self, path: bytes, kind: str, made: dict[str, Any]) -> bytes:
        event = self._newest[path] = {"type": kind, "object": made}
        return chunk(encode(event) + b"\n")

    # -- requests ----------------------------------------------------------------------------------

    def get(self, connection: Connection, target: bytes) -> None:
        path = target.partition(b"?")[0]
        if not self._is_asked:
            self._is_asked = True
            announce("asked")
        if b"watch=true" not in target:
            self._read(connection, path, target)
            return
        if path not in (NODES, PODS):
            super().get(connection, target)
            return
        connection.write(STREAM_HEAD)
        self._streams[path] = connection
        if b"sendInitialEvents=true" not in target:
            # A watch is resumed before the newest change that the client knows, and begins with it.
            connection.write(chunk(encode(self._newest[path]) + b"\n"))
            return
        self._lists[path] = asyncio.get_running_loop().create_task(
            self._stream_list(connection, path)
        )

    async def _stream_list(self, connection: Connection, path: bytes) -> None:
        """Stream a list, in pieces: a client takes a server that is silent for half a minute for
        one that cannot do that.
        """
        await self._may_list.wait()
        for index in range(self._nodes if path == NODES else self._running):
            if path == NODES:
                connection.write(self._node_bytes(index))
            else:
                where = node(index % self._nodes)["metadata"]["name"]
                cpu = f"{100 + 7919 * index % 16_000}m"  # nodes that differ have as many scores
                connection.write(self._pod_bytes(f"old-{index}", f"app-{index % 500}", cpu, where))
            if index % WRITTEN_AT_ONCE == 0:
                await asyncio.sleep(0)
        connection.write(self._current(self.bookmark))
        if path == PODS:
            announce("listed")

    def _read(self, connection: Connection, path: bytes, target: bytes) -> None:
        """The object of the newest change by its name, which is what informers compare; nothing
        else is kept.
        """
        newest, name = self._newest.get(path), NAME_SELECTOR.search(target)
        if newest is None or name is None or newest["type"] == "DELETED":
            connection.write(self._current(self.empty_list))
            return
        assert newest["object"]["metadata"]["name"] == name[1].decode(), target
        listed = {"kind": "List", "apiVersion": "v1", "items": [newest["object"]]}
        body = encode({**listed, "metadata": {"resourceVersion": str(self.revision)}})
        connection.write(ANSWER_HEAD % len(body) + body)

    def _current(self, answer: bytes) -> bytes:
        """With today's revision: an older one than what was seen would mean that etcd was
        restored.
        """
        return answer.replace(b"%d" % FIRST_POD_REVISION, b"%d" % self.revision)

    def post(self, connection: Connection, target: bytes, body: bytes) -> None:
        if target.endswith(b"/binding"):
            connection.write(_BOUND)
        else:
            super().post(connection, target, body)

    # -- what happens ------------------------------------------------------------------------------

    def happen(self, what: str, number: int) -> None:
        if what == "list":
            self._may_list.set()
            return
        events, stream = self._events_of(what, number)
        if what == "relist":
            for connection in list(self._streams.values()):
                connection.write(chunk(encode(EXPIRED) + b"\n") + b"0\r\n\r\n")
            return
        self._streams[stream].write(b"".join(events))

    def _events_of(self, what: str, number: int) -> tuple[Iterator[bytes], bytes]:
        if what == "class":
            return iter([self._pod_bytes("shaped", "shaped", "137m")]), PODS
        if what == "app":
            names = (f"fresh-{index}" for index in range(number))
            return (self._pod_bytes(name, "fresh", "100m") for name in names), PODS
        if what in ("preemption", "preemptors"):
            names = (f"{what}-{index}" for index in range(number))
            return (self._pod_bytes(name, "large", "32", priority=10) for name in names), PODS
        if what == "backlog":
            return (
                self._pod_bytes(
                    f"waits-{index}", f"wait-{index % SHAPES}", f"{200 + index % SHAPES}"
                )
                for index in range(number)
            ), PODS
        if what == "unique":
            names = (f"lone-{index}" for index in range(number))
            return (self._pod_bytes(name, name, "199") for name in names), PODS
        if what == "pool":
            gone = range(self._nodes - number, self._nodes)
            self._nodes -= number
            return (self._node_bytes(index, "DELETED") for index in gone), NODES
        self._made += 1
        index = self._nodes + self._made
        cpu = "1" if what == "small" else "1000"
        return iter([self._node_bytes(index, cpu=cpu)]), NODES


_BODY = encode({"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201})
_BOUND = (
    b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
    % (len(_BODY), _BODY)
)


async def serve(arguments: argparse.Namespace) -> None:
    state = Cluster(arguments.nodes, arguments.running)
    assert state.revision >= FIRST_POD_REVISION
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(state), "127.0.0.1", 0)
    announce(f"ready {server.sockets[0].getsockname()[1]}")
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        what, number = line.split()
        state.happen(what, int(number))


# -- the scheduler ---------------------------------------------------------------------------------


class Turns:
    """Runs in every turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._reset()
        loop.call_soon(self._turn)

    def _reset(self) -> None:
        self._longest_s = self._longest_cpu_s = self._long_s = self._all_s = 0.0
        self._stacks: Counter[str] = Counter()
        self._last, self._last_cpu = time.perf_counter(), time.thread_time()
        self._busy_at = self._last

    def _turn(self) -> None:
        now, cpu = time.perf_counter(), time.thread_time()
        took = now - self._last
        cpu_s = cpu - self._last_cpu
        if cpu_s > self._longest_cpu_s:
            self._longest_s, self._longest_cpu_s = took, cpu_s
        if cpu_s * 1000 > IDLE_MS:
            self._all_s += cpu_s
        if cpu_s * 1000 > BUSY_MS:
            self._busy_at = now
        if cpu_s * 1000 > LONG_MS:
            self._long_s += cpu_s
        self._last, self._last_cpu = now, cpu
        self._loop.call_soon(self._turn)

    def sample_long_turns(self) -> None:
        """In a thread: note what the loop's thread is doing while a turn takes too long."""
        watched = threading.get_ident()
        clock = time.pthread_getcpuclockid(watched)

        def sample() -> None:
            samples: list[str] = []
            began = self._last_cpu
            while True:
                time.sleep(SAMPLE_S)
                stack, now = _stack_of(watched), time.clock_gettime(clock)
                if began != self._last_cpu:
                    began, samples = self._last_cpu, []
                samples.append(stack)
                if (now - began) * 1000 > LONG_MS:
                    self._stacks.update(samples)
                    samples = []

        threading.Thread(target=sample, daemon=True).start()

    def report(self) -> None:
        """Once the loop is quiet."""
        if self._last < self._busy_at + QUIET_S:
            self._loop.call_later(QUIET_S / 8, self.report)
            return
        for stack, count in self._stacks.most_common(MOST_FREQUENT):
            print(f"  {count:>4} x {stack}", file=sys.stderr, flush=True)
        measured = (self._longest_cpu_s, self._longest_s, self._long_s, self._all_s)
        announce("turns " + " ".join(f"{seconds * 1000:.2f}" for seconds in measured))
        self._reset()


def _stack_of(thread: int) -> str:
    frame, names = sys._current_frames().get(thread), []
    while frame is not None and len(names) < DEPTH:
        code = frame.f_code
        names.append(f"{Path(code.co_filename).stem}.{code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(names)


def run_watched(arguments: list[str], *, stacks: bool) -> None:
    """The child: kubesched, with a callback in every turn of the loop that scheduling runs on."""
    from kubesched.app.cli.main import main as kubesched

    new_loop = event_loop.new
    turns: list[Turns] = []

    def new() -> asyncio.AbstractEventLoop:
        loop = new_loop()
        if not turns:  # the first loop is the scheduler's; the control thread makes another
            turns.append(Turns(loop))
            if stacks:
                turns[0].sample_long_turns()
        return loop

    event_loop.new = new
    signal.signal(REPORT, lambda *_: turns[0].report())
    sys.exit(kubesched(arguments))


# -- the benchmark ---------------------------------------------------------------------------------


def print_turns(title: str, scheduler: subprocess.Popen[bytes]) -> None:
    scheduler.send_signal(REPORT)
    longest, clock, long_turns, all_turns = said(scheduler, "turns", PATIENCE_S).split()[1:]
    print(
        f"{title:<12}{longest:>7} ms{clock:>7} ms{long_turns:>9} ms{all_turns:>10} ms", flush=True
    )


def measure(arguments: argparse.Namespace, folder: Path) -> None:
    command = [sys.executable, str(HERE), "--serve"]
    command += ["--nodes", str(arguments.nodes), "--running", str(arguments.running)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    scheduler: subprocess.Popen[bytes] | None = None
    try:
        port = int(said(server, "ready").split()[1])
        config = write_files(folder, port, "", argparse.Namespace(plain=True, json=False))
        command = [sys.executable, str(HERE), *["--stacks"] * arguments.stacks, "--watched"]
        command += ["run", f"--config={config}", "--secure-port=0", "-v=0"]
        scheduler = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)
        said(server, "asked", PATIENCE_S)
        print(f"{'':<12}{'longest':>10}{'clock':>10}{'over 20 ms':>12}{'all':>13}")
        print_turns("assembly", scheduler)
        assert server.stdin is not None
        server.stdin.write(b"list 0\n")
        said(server, "listed", PATIENCE_S)
        events = [
            ("start", "", 0),
            ("class", "class", 1),
            ("app", "app", 100),
            ("relist", "relist", 0),
            ("pool", "pool", arguments.nodes // 10),
            ("backlog", "backlog", arguments.backlog),
            ("unique", "unique", arguments.backlog),
            ("small node", "small", 1),
            ("large node", "large", 1),
            ("preemption", "preemption", 1),
            ("preemptors", "preemptors", 100),
        ]
        for title, what, number in events:
            if what and arguments.only and title not in arguments.only:
                continue
            if what:
                server.stdin.write(f"{what} {number}\n".encode())
            time.sleep(arguments.settle)
            print_turns(title, scheduler)
    finally:
        if scheduler is not None:
            scheduler.terminate()
            scheduler.wait()
        assert server.stdin is not None
        server.stdin.close()
        server.wait()


def main() -> None:
    if "--watched" in sys.argv:
        run_watched(sys.argv[sys.argv.index("--watched") + 1 :], stacks="--stacks" in sys.argv)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--running", type=int, default=100_000)
    parser.add_argument("--backlog", type=int, default=50_000)
    parser.add_argument("--settle", type=float, default=20.0, help="seconds for each, at least")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="what happens after the start")
    parser.add_argument("--stacks", action="store_true", help="show what runs in long turns")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        event_loop.run(serve(arguments))
        return
    with tempfile.TemporaryDirectory() as name:
        measure(arguments, Path(name))


if __name__ == "__main__":
    main()
