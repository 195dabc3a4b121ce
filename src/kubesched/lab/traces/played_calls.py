"""Calls of a played scheduler: they wait for their place in the log and return its results."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.meta import Record
from kubesched.api.names import key_of, object_key
from kubesched.base import errors
from kubesched.base.errors import ApiError, KubeschedError, TransportError
from kubesched.framework.extenders import Extender, ExtenderFilterResult, Victims
from kubesched.insight.recording.recorded_dependencies import object_name
from kubesched.insight.recording.recorder import actor
from kubesched.insight.recording.records import CallDone
from kubesched.insight.state.memory import PretendingClient
from kubesched.scheduler.flight import in_call
from kubesched.scheduler.http_extender import ExtenderError

R = TypeVar("R", bound=Record)

_ENDED = "the recording has ended"


class Gates:
    """Matches waiting tasks with log entries, and early entries with tasks, by name in order."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], deque[asyncio.Future[Any]]] = {}
        self._opened: dict[tuple[str, str], deque[Any]] = {}
        self.is_over = False
        """The log has ended: tasks are being cancelled and must not wait."""

    def close(self) -> None:
        """Release waiters of cancelled tasks: claim writes are shielded from cancellation."""
        for waiting in self._waiting.values():
            for future in waiting:
                if not future.done():
                    future.set_exception(KubeschedError(_ENDED))

    async def wait(self, kind: str, name: str) -> Any:  # noqa: ANN401  # a record
        if self.is_over:
            raise KubeschedError(_ENDED)
        opened = self._opened.get((kind, name))
        if opened:
            return opened.popleft()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault((kind, name), deque()).append(future)
        return await future

    def open(self, kind: str, name: str, entry: object) -> None:
        waiting = self._waiting.get((kind, name))
        while waiting:
            future = waiting.popleft()
            if not future.done():
                future.set_result(entry)
                return
        self._opened.setdefault((kind, name), deque()).append(entry)


def _raised(error: list[str]) -> Exception:
    """The exception that a call raised, with the attributes that callers read."""
    name, message, *rest = error
    known = getattr(errors, name, None)
    if isinstance(known, type) and issubclass(known, ApiError):
        code, reason = rest
        return known(message, code=int(code), reason=reason)
    if isinstance(known, type) and issubclass(known, TransportError):
        return known(message)
    return ExtenderError(message) if name == "ExtenderError" else KubeschedError(message)


class PlayedCalls(PretendingClient):
    """The plugins' client: calls return at the time and with the result in the log."""

    def __init__(self, gates: Gates) -> None:
        self._gates = gates

    async def patch_pod_status(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        await _answer(self._gates, "patch", key_of(pod.metadata))

    async def delete_pod(self, pod: Pod) -> None:
        await _answer(self._gates, "delete", key_of(pod.metadata))

    async def get(self, kind: type[R], namespace: str, name: str) -> R:
        key = f"{kind.__name__}/{object_key(namespace, name)}"
        return msgspec.convert(await _answer(self._gates, "get", key), kind)

    async def create(self, obj: R) -> R:
        return await self._written("create", obj)

    async def update(self, obj: R) -> R:
        return await self._written("update", obj)

    async def update_status(self, obj: R) -> R:
        return await self._written("update status", obj)

    async def patch_status(
        self, kind: type[R], namespace: str, name: str, patch: Mapping[str, Any]
    ) -> R:
        key = f"{kind.__name__}/{object_key(namespace, name)}"
        return msgspec.convert(await _answer(self._gates, "patch status", key), kind)

    async def delete(self, obj: Record) -> None:
        await _answer(self._gates, "delete object", object_name(obj))

    async def _written(self, verb: str, obj: R) -> R:
        return msgspec.convert(await _answer(self._gates, verb, object_name(obj)), type(obj))


async def _answer(gates: Gates, verb: str, key: str) -> Any:  # noqa: ANN401  # as logged
    token = in_call.set(True)
    try:
        entry: CallDone = await gates.wait(verb, f"{actor.get()} {key}")
    finally:
        in_call.reset(token)
    if entry.error is not None:
        raise _raised(entry.error)
    return entry.result


class PlayedExtender:
    """An extender that returns its recorded answers."""

    def __init__(self, extender: Extender, gates: Gates) -> None:
        self._extender = extender
        self._gates = gates

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # what the configuration says of it
        return getattr(self._extender, name)

    async def filter(self, pod: Pod, nodes: Sequence[Node]) -> ExtenderFilterResult:
        return msgspec.convert(await self._asked("filter", pod), ExtenderFilterResult)

    async def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> Sequence[tuple[str, int]]:
        return [(name, int(points)) for name, points in await self._asked("prioritize", pod)]

    async def process_preemption(
        self, pod: Pod, victims: Mapping[str, Victims]
    ) -> Mapping[str, Victims]:
        return msgspec.convert(await self._asked("preempt", pod), dict[str, Victims])

    async def bind(self, pod: Pod, node_name: str) -> None:
        """No-op: the log has the result as the end of the binding."""

    async def _asked(self, verb: str, pod: Pod) -> Any:  # noqa: ANN401  # as logged
        return await _answer(self._gates, verb, f"{self._extender.name} {key_of(pod.metadata)}")


def no_network() -> Any:  # noqa: ANN401  # stands where a transport would
    class NoNetwork:
        async def aclose(self) -> None:
            """No-op."""

    return NoNetwork()
