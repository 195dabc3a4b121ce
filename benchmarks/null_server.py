"""An API server that costs next to nothing: what is measured is the scheduler's own.

It has nodes, and pods that appear when it is told `go` on standard input, at most `--window` of
them unbound at a time. Every answer and every watch event is a template of bytes that was made
before: a binding is answered with kube-apiserver's 201 and comes back on the watch as the bound
pod, an event with the 201 of an event. All other collections are empty and quiet. Nothing is
checked, kept or counted but which pods are bound and how many events came.

It says on standard output, a line each: `ready PORT`, `watched` once pods are watched, `bound`
after the last binding and `done` when as many events as pods have come, too.
`benchmarks/process.py` starts it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import ssl
import sys
from typing import Any, cast

from client import BINDING_ANSWER, pod_event
from run_process import node

from kubesched.api.watch import INITIAL_EVENTS_END
from kubesched.app import event_loop

NODE_NAME = re.compile(rb"node-\d{5}")
CONTENT_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
FIRST_POD_REVISION = 1_000_000
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
)
LIST_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
EVENT_ANSWER = (
    b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
)


def chunk(line: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(line), line)


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def managed_fields() -> list[dict[str, Any]]:
    """About a kilobyte that every real pod has and no scheduler reads."""
    fields = {f"f:field{number}": {".": {}, "f:name": {}} for number in range(24)}
    entry = {"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1"}
    return [{**entry, "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields}}]


class Pods:
    """The watch events of every pod, before and after its binding, in pieces to be joined."""

    def __init__(self, count: int, templates: int) -> None:
        self.count = count
        self._templates = templates
        event = json.loads(pod_event(0))
        event["object"]["metadata"]["managedFields"] = managed_fields()
        event["object"]["metadata"] |= {"name": "@NAME@", "uid": "@UID@", "resourceVersion": "@RV@"}
        event["object"]["metadata"]["labels"]["app"] = "@APP@"
        event["object"]["spec"]["containers"][0]["resources"] = {
            "requests": {"cpu": "100m", "memory": "100Mi"}
        }
        self._added = self._pieces(event)
        event["type"] = "MODIFIED"
        event["object"]["spec"]["nodeName"] = "@NODE@"
        event["object"]["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ]
        self._bound = self._pieces(event)

    @staticmethod
    def _pieces(event: dict[str, Any]) -> bytes:
        text = encode(event).replace(b"%", b"%%") + b"\n"
        for name in ("NAME", "UID", "RV", "APP", "NODE"):
            text = text.replace(b'"@%s@"' % name.encode(), b'"%%(%s)b"' % name.encode())
        return text

    def _fields(self, index: int) -> dict[bytes, bytes]:
        return {
            b"NAME": b"web-5d5f7c8b9c-%06d" % index,
            b"UID": b"3f0c9a52-7d38-4c43-a5a1-%012d" % index,
            b"APP": b"app-%d" % (index % self._templates),
        }

    def added(self, index: int, revision: int) -> bytes:
        return chunk(self._added % (self._fields(index) | {b"RV": b"%d" % revision}))

    def bound(self, index: int, revision: int, node_name: bytes) -> bytes:
        fields = self._fields(index) | {b"RV": b"%d" % revision, b"NODE": node_name}
        return chunk(self._bound % fields)


class NullServer:
    """What there is, and how far it has come."""

    def __init__(self, nodes: int, pods: Pods, window: int) -> None:
        self.pods = pods
        self.window = window
        self.created = self.bound = self.events = 0
        self.revision = FIRST_POD_REVISION
        self.watch: Connection | None = None
        self._unsent: list[bytes] = []
        bookmark = {
            "type": "BOOKMARK",
            "object": {
                "metadata": {
                    "resourceVersion": str(FIRST_POD_REVISION),
                    "annotations": {INITIAL_EVENTS_END: "true"},
                }
            },
        }
        self.bookmark = chunk(encode(bookmark) + b"\n")
        made_nodes = [self._node(index) for index in range(nodes)]
        events = (encode({"type": "ADDED", "object": made}) + b"\n" for made in made_nodes)
        self.nodes = b"".join(map(chunk, events)) + self.bookmark
        self.empty_list = self._list([])
        # A reflector whose watch is quiet reads the newest object that it knows.
        self.newest_node = self._list(made_nodes[-1:])
        made = encode({"kind": "Event", "metadata": {"managedFields": managed_fields()}})
        self.event_answer = EVENT_ANSWER % (len(made), made)

    @staticmethod
    def _node(index: int) -> dict[str, Any]:
        made = node(index)
        made["metadata"] |= {"uid": f"node-uid-{index}", "resourceVersion": str(index + 1)}
        return made

    @staticmethod
    def _list(items: list[dict[str, Any]]) -> bytes:
        metadata = {"resourceVersion": str(FIRST_POD_REVISION)}
        body = encode({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items})
        return LIST_ANSWER % (len(body), body)

    def get(self, connection: Connection, target: bytes) -> None:
        path = target.partition(b"?")[0]
        if b"watch=true" not in target:
            connection.write(self.newest_node if path == b"/api/v1/nodes" else self.empty_list)
            return
        connection.write(STREAM_HEAD)
        if b"sendInitialEvents=true" in target:
            connection.write(self.nodes if path == b"/api/v1/nodes" else self.bookmark)
        if path == b"/api/v1/pods":
            self.watch = connection
            announce("watched")

    def post(self, connection: Connection, target: bytes, body: bytes) -> None:
        if target.endswith(b"/binding"):
            connection.write(BINDING_ANSWER)
            name_at = target.rindex(b"-", 0, -len(b"/binding")) + 1
            node_name = NODE_NAME.search(body)
            assert node_name is not None, body
            self.bound += 1
            self.revision += 1
            index = int(target[name_at : -len(b"/binding")])
            self._send(self.pods.bound(index, self.revision, node_name[0]))
            self.create()
            if self.bound == self.pods.count:
                announce("bound")
        elif b"/events" in target:
            connection.write(self.event_answer)
            self.events += 1
        else:
            connection.write(self.empty_list)
        if self.bound == self.events == self.pods.count:
            announce("done")

    def create(self) -> None:
        """Have as many unbound pods as the window allows."""
        while self.created < min(self.pods.count, self.bound + self.window):
            self.revision += 1
            self._send(self.pods.added(self.created, self.revision))
            self.created += 1

    def _send(self, event: bytes) -> None:
        # One write for everything that a turn of the loop brings, as a busy API server does.
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent.append(event)

    def _flush(self) -> None:
        assert self.watch is not None, "pods are not watched"
        self.watch.write(b"".join(self._unsent))
        self._unsent.clear()


class Connection(asyncio.Protocol):
    """Cuts requests apart; nothing of them is checked."""

    def __init__(self, server: NullServer) -> None:
        self._server = server
        self._received = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        data = self._received + data
        while (head_end := data.find(b"\r\n\r\n")) >= 0:
            head = data[:head_end]
            length = CONTENT_LENGTH.search(head)
            end = head_end + 4 + (int(length[1]) if length else 0)
            if len(data) < end:
                break
            method, target, _ = head.split(b" ", 2)
            if method == b"GET":
                self._server.get(self, target)
            else:
                self._server.post(self, target, data[head_end + 4 : end])
            data = data[end:]
        self._received = data


def announce(what: str) -> None:
    print(what, flush=True)


async def serve(arguments: argparse.Namespace) -> None:
    context = None
    if arguments.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(arguments.certificate, arguments.key)
    state = NullServer(arguments.nodes, Pods(arguments.pods, arguments.templates), arguments.window)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(state), "127.0.0.1", 0, ssl=context)
    announce(f"ready {server.sockets[0].getsockname()[1]}")
    # Ends with the input: the server must not outlive the process that started it.
    while await loop.run_in_executor(None, sys.stdin.readline):
        state.create()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--templates", type=int, default=1, help="apps that pods belong to in turn")
    parser.add_argument("--window", type=int, default=1000, help="pods unbound at a time")
    parser.add_argument("--certificate", default="", help="serve TLS with this certificate")
    parser.add_argument("--key", default="")
    event_loop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
