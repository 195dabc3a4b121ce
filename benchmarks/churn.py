"""Memory of `kubesched run` under the churn of `soak.py`: hours of it within minutes.

    python benchmarks/churn.py [--hours 6] [--plain] [--every-minutes 20] [--watch-s 12]

Pods come and the oldest go, 3,000 at a time, and nodes are cordoned, tainted, or deleted and made
anew, as fast as the scheduler binds beside a server of prepared objects (`null_server.py`). Twenty
pods are a second of the soak: events are remembered as long, and pods have times, as if so much had
passed. Watches end after `--watch-s` to twice as much, in seconds of the clock.

Each line: the minute, resident memory, memory blocks of the interpreter, its arenas and what is in
use of them, what the C library has in use and free, events remembered, and descriptors. In the end
the cyclic garbage that the collector had frozen: the exit code is 1 if there is any.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from pathlib import Path
from random import Random
from typing import Any

from client import BINDING_ANSWER, make_certificate
from null_server import (
    FIRST_POD_REVISION,
    LIST_ANSWER,
    NODE_NAME,
    STREAM_HEAD,
    Connection,
    NullServer,
    Pods,
    announce,
    chunk,
    encode,
    managed_fields,
)
from process import WATCH_SETTLE_S, said, write_files
from run_process import node, pod

from kubesched.app import event_loop
from kubesched.client import events
from kubesched.client.informers.reflector import Reflector

HERE = Path(__file__)
NODES = 300
LIVE_PODS = 3_000
WINDOW = 50
RATE = 20
FLAP_EVERY = 40
LOOK_S = 0.02
PATIENCE_S = 60.0
LOOK, LAST_LOOK = signal.SIGRTMIN, signal.SIGRTMIN + 1
PODS_PATH, NODES_PATH = b"/api/v1/pods", b"/api/v1/nodes"
BOUND_POD = re.compile(rb"-(\d+)/binding")


# -- the server ------------------------------------------------------------------------------------


class Churn(NullServer):
    """Pods and nodes that come and go, with watches that end and are resumed."""

    def __init__(self, pods: int, every: int) -> None:
        super().__init__(NODES, Pods(pods, 1), WINDOW)
        self._every = every
        self._random = Random(1)
        self._alive: deque[int] = deque()
        self._node_of: dict[int, str] = {}
        self._specs: list[dict[str, Any]] = [{} for _ in range(NODES)]
        self._uids = list(range(NODES))
        self._managed = managed_fields()
        self._newest: dict[bytes, dict[str, Any] | None] = {}
        self._watches: dict[bytes, Connection] = {}
        self._history: dict[bytes, deque[tuple[int, bytes]]] = {
            PODS_PATH: deque(maxlen=20_000),
            NODES_PATH: deque(maxlen=2_000),
        }

    def get(self, connection: Connection, target: bytes) -> None:
        path = target.partition(b"?")[0]
        if b"watch=true" not in target:
            newest = self._newest.get(path)
            body = {"kind": "List", "apiVersion": "v1", "items": [newest] if newest else []}
            answer = encode({**body, "metadata": {"resourceVersion": str(self.revision)}})
            connection.write(LIST_ANSWER % (len(answer), answer))
            return
        timeout = re.search(rb"timeoutSeconds=(\d+)", target)
        assert timeout is not None, target
        asyncio.get_running_loop().call_later(int(timeout[1]), self._end, connection, path)
        self._watches[path] = connection
        if b"sendInitialEvents=true" in target:
            super().get(connection, target)
            return
        since = re.search(rb"resourceVersion=(\d+)", target)
        assert since is not None, target
        missed = [line for at, line in self._history.get(path, ()) if at > int(since[1])]
        connection.write(STREAM_HEAD + b"".join(missed))

    def _end(self, connection: Connection, path: bytes) -> None:
        if self._watches.get(path) is connection:
            del self._watches[path]
        connection.write(b"0\r\n\r\n")

    def post(self, connection: Connection, target: bytes, body: bytes) -> None:
        if target.endswith(b"/binding"):
            self._bind(connection, target, body)
        elif b"/events" in target:
            connection.write(self.event_answer)
            self.events += 1
        else:
            connection.write(self.empty_list)
        if self.bound == self.pods.count <= self.events:
            announce("done")

    def _bind(self, connection: Connection, target: bytes, body: bytes) -> None:
        connection.write(BINDING_ANSWER)
        name, node_name = BOUND_POD.search(target), NODE_NAME.search(body)
        assert name is not None and node_name is not None, target  # noqa: PT018
        index = int(name[1])
        self._node_of[index] = node_name[0].decode()
        self._change("MODIFIED", PODS_PATH, self._pod(index))
        self.bound += 1
        if self.bound % FLAP_EVERY == 0:
            self._flap()
        self.create()
        if self.bound % self._every == 0:
            announce(f"bound {self.bound}")

    def create(self) -> None:
        while self.created < min(self.pods.count, self.bound + self.window):
            self._change("ADDED", PODS_PATH, self._pod(self.created))
            self._alive.append(self.created)
            self.created += 1
            while len(self._alive) > LIVE_PODS and self._alive[0] in self._node_of:
                gone = self._alive.popleft()
                self._change("DELETED", PODS_PATH, self._pod(gone))
                del self._node_of[gone]

    def _pod(self, index: int) -> dict[str, Any]:
        second = index // RATE
        then = f"2026-01-01T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z"
        made = pod(index)
        made["metadata"] |= {"uid": f"3f0c9a52-7d38-4c43-a5a1-{index:012d}"}
        made["metadata"] |= {"creationTimestamp": then, "managedFields": self._managed}
        made["spec"] |= {"schedulerName": "default-scheduler", "priority": 0}
        made["status"] = {"phase": "Pending", "qosClass": "Burstable"}
        if index in self._node_of:
            made["spec"]["nodeName"] = self._node_of[index]
            told = {"type": "PodScheduled", "status": "True", "lastTransitionTime": then}
            made["status"]["conditions"] = [told]
        return made

    def _flap(self) -> None:
        index = self._random.randrange(NODES)
        kind = self._random.choice(("cordon", "taint", "clear", "clear", "replace"))
        taint = {"key": "example.com/soak", "effect": "NoSchedule"}
        specs: dict[str, dict[str, Any]] = {
            "cordon": {"unschedulable": True},
            "taint": {"taints": [taint]},
        }
        if kind == "replace":
            self._change("DELETED", NODES_PATH, self._node_now(index))
            self._uids[index] += NODES
        self._specs[index] = specs.get(kind, {})
        change = "ADDED" if kind == "replace" else "MODIFIED"
        self._change(change, NODES_PATH, self._node_now(index))

    def _node_now(self, index: int) -> dict[str, Any]:
        made = node(index)
        made["metadata"]["uid"] = f"node-uid-{self._uids[index]}"
        made["spec"] |= self._specs[index]
        return made

    def _change(self, kind: str, path: bytes, made: dict[str, Any]) -> None:
        self.revision += 1
        made["metadata"]["resourceVersion"] = str(self.revision)
        self._newest[path] = None if kind == "DELETED" else made
        line = chunk(encode({"type": kind, "object": made}) + b"\n")
        self._history[path].append((self.revision, line))
        if (watch := self._watches.get(path)) is not None:
            watch.write(line)


async def serve(arguments: argparse.Namespace) -> None:
    context = None
    if arguments.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(arguments.certificate, arguments.key)
    state = Churn(arguments.pods, arguments.every)
    assert state.revision == FIRST_POD_REVISION
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(state), "127.0.0.1", 0, ssl=context)
    announce(f"ready {server.sockets[0].getsockname()[1]}")
    while await loop.run_in_executor(None, sys.stdin.readline):
        state.create()


# -- the scheduler ---------------------------------------------------------------------------------


class PodClock:
    """Tells the time by the number of events, of which every pod has one."""

    def __init__(self) -> None:
        self.broadcaster: Any = None
        self.recorded = 0
        self._began = time.time()

    def now(self) -> float:
        return self._began + self.monotonic()

    def monotonic(self) -> float:
        return self.recorded / RATE

    async def every(self, interval_s: float, action: Any) -> None:
        due = interval_s
        while True:
            await asyncio.sleep(LOOK_S)
            if self.monotonic() >= due:
                due += interval_s
                await action()


class Heap(ctypes.Structure):
    """`mallinfo2` of the C library."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


LIBRARY = ctypes.CDLL(None)
LIBRARY.mallinfo2.restype = Heap


def interpreter_mb() -> tuple[float, float]:
    """The size of the interpreter's arenas, and what is in use of them."""
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            sys._debugmallocstats()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        file.seek(0)
        text = file.read().decode()
    arenas = re.search(r"(\d+) arenas \* (\d+) bytes/arena", text)
    used = re.search(r"bytes in allocated blocks\s*=\s*([\d,]+)", text)
    assert arenas is not None and used is not None, text  # noqa: PT018
    return int(arenas[1]) * int(arenas[2]) / 2**20, int(used[1].replace(",", "")) / 2**20


def look(clock: PodClock) -> str:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    arenas, used = interpreter_mb()
    heap = LIBRARY.mallinfo2()
    return (
        f"{pages * os.sysconf('SC_PAGE_SIZE') / 2**20:>9.1f}{sys.getallocatedblocks():>10,}"
        f"{arenas:>9.0f}{used:>8.1f}{heap.uordblks / 2**20:>8.1f}{heap.fordblks / 2**20:>7.1f}"
        f"{len(clock.broadcaster._cache):>9,}{len(os.listdir('/proc/self/fd')):>5}"
    )


def garbage() -> Counter[str]:
    """What a full collection finds, by type. The process is of no use afterwards."""
    gc.callbacks.clear()
    gc.unfreeze()
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    return Counter(type(each).__qualname__ for each in gc.garbage)


def run_watched(arguments: list[str]) -> None:
    """The child: kubesched, with a clock of pods for events, and watches that are short."""
    from kubesched.app.cli.main import main as kubesched

    clock, watch_s, random = PodClock(), float(arguments[0]), Random(1)
    make, record = events.EventBroadcaster.__init__, events.EventBroadcaster.record

    def make_with_clock(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **{**options, "clock": clock})
        clock.broadcaster = self

    def record_and_count(self: Any, *args: Any) -> None:
        clock.recorded += 1
        record(self, *args)

    events.EventBroadcaster.__init__ = make_with_clock
    events.EventBroadcaster.record = record_and_count
    events._every = clock.every
    Reflector._watch_timeout_s = lambda _: watch_s * (1 + random.random())
    signal.signal(LOOK, lambda *_: announce("look " + look(clock)))
    signal.signal(LAST_LOOK, lambda *_: announce("garbage " + json.dumps(garbage())))
    sys.exit(kubesched(arguments[1:]))


# -- the benchmark ---------------------------------------------------------------------------------


def measure(arguments: argparse.Namespace, folder: Path) -> int:
    pods = round(arguments.hours * 3600 * RATE)
    every = round(arguments.every_minutes * 60 * RATE)
    command = [sys.executable, str(HERE), "--serve", f"--pods={pods}", f"--every={every}"]
    certificate = ""
    if not arguments.plain:
        certificate, key = make_certificate(folder)
        command += ["--certificate", certificate, "--key", key]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    scheduler: subprocess.Popen[bytes] | None = None
    assert server.stdin is not None
    try:
        port = int(said(server, "ready").split()[1])
        connection = argparse.Namespace(plain=arguments.plain, json=False)
        config = write_files(folder, port, certificate, connection)
        command = [sys.executable, str(HERE), "--watched", str(arguments.watch_s)]
        command += ["run", f"--config={config}", "--secure-port=0", "-v=0"]
        scheduler = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)
        while said(server, "", PATIENCE_S) != "watched\n":
            pass
        time.sleep(WATCH_SETTLE_S)
        server.stdin.write(b"go\n")
        print("minute      RSS    blocks   arenas    used  C used   free   events  fds")
        while not (line := said(server, "", 10 * PATIENCE_S)).startswith("done"):
            if line.startswith("bound"):
                scheduler.send_signal(LOOK)
                found = said(scheduler, "look", PATIENCE_S)[4:].rstrip()
                print(f"{int(line.split()[1]) / RATE / 60:>6.0f}{found}", flush=True)
        scheduler.send_signal(LAST_LOOK)
        left = json.loads(said(scheduler, "garbage", PATIENCE_S)[7:])
        print("cyclic garbage:", left or "none")
        return 1 if left else 0
    finally:
        for process in (scheduler, server):
            if process is not None:
                process.kill()
                process.wait()


def main() -> int:
    if sys.argv[1:2] == ["--watched"]:
        run_watched(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--hours", type=float, default=6.0)
    parser.add_argument("--every-minutes", type=float, default=20.0)
    parser.add_argument("--watch-s", type=float, default=12.0)
    parser.add_argument("--plain", action="store_true", help="HTTP without TLS")
    for hidden in ("pods", "every"):
        parser.add_argument(f"--{hidden}", type=int, help=argparse.SUPPRESS)
    for hidden in ("certificate", "key"):
        parser.add_argument(f"--{hidden}", default="", help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        event_loop.run(serve(arguments))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return measure(arguments, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
