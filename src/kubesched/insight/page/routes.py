"""Maps request paths to answers. Access is checked before, by `access` or the serving port."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs

import msgspec

from kubesched.api.core_v1 import Pod
from kubesched.base.clock import SystemClock
from kubesched.base.errors import ApiError, KubeschedError
from kubesched.base.http_server.event_stream import event_stream
from kubesched.base.http_server.messages import Response
from kubesched.base.version import __version__
from kubesched.insight.page import assets, attempts, columns, nodes, pending
from kubesched.insight.page.access import with_headers
from kubesched.insight.page.attempts import Moments
from kubesched.insight.page.decision import MatrixSelection
from kubesched.insight.page.nodes import device_columns
from kubesched.insight.page.source import Busy, Source, Turns, View, view_of_state
from kubesched.insight.page.updates import Updates
from kubesched.insight.page.what_if import WhatIf
from kubesched.insight.state.cluster_state import ClusterState

T = TypeVar("T")

JSON: Final = "application/json"
MAX_STREAMS: Final = 32
OTHERS_S: Final = 5.0
"""How long pods of other schedulers are kept: reading 150,000 pods takes the loop 30 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One authorized request."""

    method: str
    path: str
    """Relative to the page's root: `api/nodes`."""
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def one(self, name: str) -> str:
        values = parse_qs(self.query, keep_blank_values=True, max_num_fields=32).get(name)
        return values[0] if values else ""


class BadCall(KubeschedError):
    """A malformed request."""


Handler = Callable[[Call], Awaitable[Response]]


class Pages:
    """Answers all requests of the page."""

    def __init__(self, source: Source) -> None:
        self.updates = Updates(source)
        self.show(source)
        self._turns = Turns()
        self._preparing: asyncio.Task[None] | None = None
        self._reads: dict[str, Handler] = {
            "api/meta": self._meta,
            "api/nodes": self._nodes,
            "api/labels": self._labels,
            "api/node": self._node,
            "api/placements": self._placements,
            "api/queue": self._queue,
            "api/decisions": self._decisions,
            "api/pods": self._pods,
            "api/explain": self._explain,
            "api/workloads": self._workloads,
            "api/events": self._events,
        }
        self._writes: dict[str, Handler] = {"api/whatif": self._ask_what_if, "api/act": self._act}

    def show(self, source: Source) -> None:
        """Show this source from now on; open pages load everything anew."""
        self.source = source
        self.updates.follow(source)
        self._what_if = WhatIf(source.config, source.gates)
        self._moments: Moments | None = None
        if source.reader is not None:
            self._moments = Moments(source.reader, source.config, source.gates)
        self._copy: tuple[object, ClusterState] | None = None
        self._others: tuple[float, list[Pod]] = (0.0, [])

    async def answer(self, call: Call) -> Response:
        """The response; failures become a JSON object with a message."""
        try:
            return with_headers(await self._route(call))
        except Busy:
            return failure(503, "too many questions at once; try again")
        except ApiError as error:
            return failure(error.code if 400 <= error.code < 500 else 500, str(error))
        except KubeschedError as error:
            return failure(400, str(error))

    async def _route(self, call: Call) -> Response:
        if call.path in ("", "index.html"):
            page = assets.serve("index.html", call.headers)
            assert page is not None, "the page is part of the package"
            return page
        if call.path.startswith("static/"):
            served = assets.serve(call.path.removeprefix("static/"), call.headers)
            return served if served is not None else failure(404, "there is no such file")
        handlers = self._writes if call.method == "POST" else self._reads
        handler = handlers.get(call.path)
        if handler is None:
            known = call.path in self._reads or call.path in self._writes
            return failure(405 if known else 404, "there is nothing here for that method")
        # Not compressed: most clients are local, and packing 100,000 nodes would block the loop.
        return await handler(call)

    # -- views -------------------------------------------------------------------------------------

    async def _view(self, call: Call) -> View:
        """The view for the parameter `at` (seconds since the epoch); the current one without it."""
        text = call.one("at")
        if not text:
            return self.source.view
        try:
            at = float(text)
        except ValueError:
            raise BadCall(f"at: {text!r} is not a time in seconds since the epoch") from None
        moments = self._recorded()
        return await self._turns.run(lambda: moments.at(at))

    def _recorded(self) -> Moments:
        if self._moments is None:
            raise BadCall("there is no recording to go back in")
        return self._moments

    async def _read(self, view: View, function: Callable[[], T]) -> T:
        """Run where the view may be read: only the current view needs the source's thread."""
        if view is self.source.view:
            return await self.source.read(function)
        return function()

    # -- reading -----------------------------------------------------------------------------------

    async def _meta(self, call: Call) -> Response:
        source = self.source
        made: dict[str, Any] = {
            "kind": source.kind,
            "title": source.title,
            "live": source.is_live,
            "canAct": source.actions is not None,
            "readers": self.updates.readers,
            "version": __version__,
        }
        if self._moments is not None:
            moments = self._moments
            made["span"] = await self._turns.run(moments.span)
        return json_response(made)

    async def _nodes(self, call: Call) -> Response:
        view = await self._view(call)

        def look() -> tuple[dict[str, Any], dict[str, columns.Array]]:
            table = view.assembly.table
            header, made = nodes.node_columns(table)
            resources, more = device_columns(view.assembly, nodes.live_rows(table))
            header["resources"] += resources
            made |= more
            if view is self.source.view:
                header["id"] = str(self.updates.place())
            # Copied, since the table changes while they are packed.
            return header, {name: values.copy() for name, values in made.items()}

        header, made = await self._read(view, look)
        return binary(columns.pack(header, made))

    async def _labels(self, call: Call) -> Response:
        view, key = await self._view(call), call.one("key")
        table = view.assembly.table

        def look() -> tuple[dict[str, Any], dict[str, columns.Array]]:
            if key not in table.label_keys():
                raise BadCall(f"no node has the label {key!r}")
            return nodes.label_values(table, key)

        header, made = await self._read(view, look)
        return binary(columns.pack(header, made))

    async def _node(self, call: Call) -> Response:
        view, name = await self._view(call), call.one("name")
        details = await self._read(view, lambda: nodes.node_details(view.assembly.table, name))
        if details is None:
            return failure(404, f"there is no node {name!r}")
        return json_response(details)

    async def _placements(self, call: Call) -> Response:
        view = await self._view(call)
        return json_response(await self._read(view, lambda: nodes.placements(view.assembly)))

    async def _queue(self, call: Call) -> Response:
        view, now = await self._view(call), SystemClock().now()

        def look() -> dict[str, Any]:
            if view.explainer is None:
                if now - self._others[0] > OTHERS_S:
                    self._others = now, pending.of_other_schedulers(view.assembly)
                return pending.queued_pods(view.assembly, self._others[1])
            return pending.pending_pods(view.assembly, view.pods())

        # With the time here: the browser's clock may be another.
        return json_response({**await self._read(view, look), "now": now})

    async def _decisions(self, call: Call) -> Response:
        source = self.source
        if source.ring is not None:
            ring = source.ring
            after = call.one("after")
            number = int(after) if after.isdecimal() and len(after) < 19 else 0
            listed = await source.read(lambda: attempts.from_ring(ring, number))
            return json_response(attempts.as_json(listed, ring.count))
        if self._moments is not None:
            listed = await self._turns.run(self._moments.attempts)
        else:
            listed = await source.read(lambda: attempts.from_conditions(source.view.pods()))
        return json_response(attempts.as_json(listed, len(listed)))

    async def _pods(self, call: Call) -> Response:
        """Pods whose names contain the text, for the search."""
        view, text = await self._view(call), call.one("contains").lower()

        def look() -> list[list[str]]:
            matching: list[list[str]] = []
            for pod in view.pods():
                key = f"{pod.metadata.namespace}/{pod.metadata.name}"
                if text in key.lower():
                    matching.append([key, pod.spec.node_name])
                    if len(matching) >= 50:
                        break
            return matching

        return json_response({"pods": await self._read(view, look)})

    async def _workloads(self, call: Call) -> Response:
        actions = self.source.actions
        return json_response({"workloads": [] if actions is None else actions.workloads()})

    async def _events(self, call: Call) -> Response:
        if not self.source.is_live:
            return Response(204)  # tells an EventSource not to reconnect
        if self.updates.readers >= MAX_STREAMS:
            return failure(503, "too many readers")
        since = call.headers.get("last-event-id") or call.one("since")
        return event_stream(self.updates.events(since))

    # -- explaining --------------------------------------------------------------------------------

    async def _explain(self, call: Call) -> Response:
        pod, number, fix = call.one("pod"), call.one("attempt"), call.one("fix") == "1"
        if pod.count("/") != 1:
            raise BadCall(f"pod: {pod!r} is not NAMESPACE/NAME")
        if number and self._moments is not None and number.isdecimal() and len(number) < 19:
            moments = self._moments
            return binary(
                await self._turns.run(lambda: self._explain_attempt(moments, pod, int(number), fix))
            )
        view = await self._view(call)
        if view.explainer is not None and not fix:
            return binary(self._explained(view, pod, fix=False))
        # Fixes take up to ten seconds, and are tried in the table: not in the one that is shown.
        state = await self._state() if view is self.source.view else view.state()
        source = self.source

        def explain_copy() -> bytes:
            return self._explained(view_of_state(state, source.config, source.gates), pod, fix)

        return binary(await self._turns.run(explain_copy))

    def _explained(self, view: View, key: str, fix: bool) -> bytes:
        assert view.explainer is not None
        namespace, _, name = key.partition("/")
        pod = view.state().get(Pod, namespace, name)
        if pod is None:
            raise BadCall(f"pod {key} is not there; it was deleted, or has finished")
        matrix = MatrixSelection()
        explanation = view.explainer.explain(pod, matrix, fix=fix)
        return matrix.pack(explanation, source=view.state().source)

    def _explain_attempt(self, moments: Moments, pod: str, number: int, fix: bool) -> bytes:
        """Explain an attempt; replays it if the recording includes the beginning of its run."""
        if self.source.play is not None:
            matrix = MatrixSelection()
            explanation = self.source.play(moments.reader(), pod, number, matrix, fix)
            if explanation is not None:
                return matrix.pack(explanation, attempt=number)
        return self._explained(moments.before_attempt(number), pod, fix)

    async def _state(self) -> ClusterState:
        """The current objects; the same copy is returned until something changes."""

        def look() -> tuple[object, ClusterState]:
            table = self.source.view.assembly.table
            version = (table.pod_log.end, table.swap_log.end, self.updates.place())
            if self._copy is not None and self._copy[0] == version:
                return self._copy
            return version, self.source.view.state()

        self._copy = await self.source.read(look)
        return self._copy[1]

    # -- what-if and actions -----------------------------------------------------------------------

    async def _ask_what_if(self, call: Call) -> Response:
        request = _json(call)
        text = request.get("yaml")
        if not isinstance(text, str):
            raise BadCall("yaml: expected a text")
        at = request.get("at")
        if isinstance(at, int | float):
            if abs(at) > sys.float_info.max:
                raise BadCall("at: not a time in seconds since the epoch")
            moments = self._recorded()
            view = await self._turns.run(lambda: moments.at(float(at)))
            state = view.state()
        else:
            state = await self._state()
        if request.get("prepare"):
            await self._turns.run(lambda: self._what_if.prepare(state))
            return json_response({})
        answered = await self._turns.run(lambda: self._what_if.answer(state, text))
        self._prepare(state)
        return json_response(answered)

    def _prepare(self, state: ClusterState) -> None:
        """Load the next cluster while the user reads the answer."""
        if self._preparing is None or self._preparing.done():

            async def prepare() -> None:
                await self._turns.run(lambda: self._what_if.prepare(state))

            self._preparing = asyncio.get_running_loop().create_task(prepare())

    async def aclose(self) -> None:
        if self._preparing is not None:
            self._preparing.cancel()
            await asyncio.wait((self._preparing,))

    async def _act(self, call: Call) -> Response:
        actions = self.source.actions
        if actions is None:
            return failure(403, "nothing can be changed here")
        request = _json(call)
        return json_response(actions.do(request, preview=request.get("preview") is True))


def _json(call: Call) -> dict[str, Any]:
    if not call.headers.get("content-type", "").startswith(JSON):
        raise BadCall(f"Content-Type: expected {JSON}")
    try:
        value = msgspec.json.decode(call.body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadCall(f"not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadCall("expected an object")
    return value


def json_response(value: object, status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(value), JSON)


def binary(body: bytes) -> Response:
    return Response(body=body, content_type=columns.CONTENT_TYPE)


def failure(status: int, message: str) -> Response:
    return with_headers(json_response({"message": message}, status))
