"""All informers of a process: one per kind, started, awaited and stopped together.

Every caller gets the same informer for a kind. Tasks belong to the caller's `TaskGroup`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from kubesched.api.kinds import Kind, find_event_resource, kind_of
from kubesched.api.meta import ApiObject, CustomObject
from kubesched.base.clock import Clock
from kubesched.base.errors import DeadlineExceeded, KubeschedError
from kubesched.client.informers.collection import Collection, Selection
from kubesched.client.informers.informer import Informer, OnChange, Transform
from kubesched.client.informers.lister import Lister
from kubesched.client.informers.reflector import ReflectorSettings
from kubesched.client.informers.restore import Restore
from kubesched.client.rest import RestClient

T = TypeVar("T", bound=ApiObject)

BLIND_AFTER_S = 180.0
"""An informer is blind if neither its watch nor a revision check confirmed it for this long. Three
checks (`ReflectorSettings.check_s`) fit into it.
"""

# mypy cannot express "a Record with metadata", which every kind's record is; hence `Any` here.
AnyInformer = Informer[Any]


@dataclass(slots=True)
class _Entry:
    informer: AnyInformer
    selection: Selection
    task: asyncio.Task[None] | None = None


class UndeclaredKind(KubeschedError):
    """Lookup of a kind that is not watched. Fix: name the kind in the plugin's `lists`."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"{kind} objects are not watched: a plugin that looks them up must name {kind} in "
            "`lists`"
        )


class InformerFactory:
    """Makes informers on demand; those made after `start` need another `start`."""

    def __init__(
        self,
        client: RestClient,
        *,
        clock: Clock,
        random: random.Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        settings: ReflectorSettings | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._random = random
        self._sleep = sleep
        self._settings = settings
        self._entries: dict[Kind[Any], _Entry] = {}
        self.restore = Restore(lambda: [informer.reflector for informer in self.started()])
        self.on_change: OnChange | None = None
        """Passed to every informer made from now on."""

    @overload
    def informer(
        self,
        kind: type[T],
        *,
        selection: Selection | None = None,
        transform: Transform[T] | None = None,
    ) -> Informer[T]: ...

    @overload
    def informer(
        self,
        kind: Kind[Any] | type[Any] | str,
        *,
        selection: Selection | None = None,
        transform: Transform[Any] | None = None,
    ) -> AnyInformer: ...

    def informer(
        self,
        kind: type[Any] | Kind[Any] | str,
        *,
        selection: Selection | None = None,
        transform: Transform[Any] | None = None,
    ) -> AnyInformer:
        """The informer of a kind; the first caller sets selection and transform."""
        kind = _kind(kind)
        entry = self._entries.get(kind)
        if entry is None:
            selection = selection or Selection()
            informer: AnyInformer = Informer(
                Collection(self._client, kind, selection),
                name=kind.resource,
                clock=self._clock,
                random=self._random,
                transform=transform,
                sleep=self._sleep,
                settings=self._settings,
                restore=self.restore,
                is_optional=issubclass(kind.record, CustomObject),
                hint=_how_it_is_served(kind) if kind.is_preview else "",
            )
            informer.on_change = self.on_change
            self._entries[kind] = _Entry(informer, selection)
            return informer
        if selection is not None and selection != entry.selection:
            raise ValueError(f"informer for {kind.resource} exists already with another selection")
        return entry.informer

    @overload
    def of(self, kind: type[T]) -> Lister[T]: ...

    @overload
    def of(self, kind: Kind[Any] | type[Any] | str) -> Lister[Any]: ...

    def of(self, kind: type[Any] | Kind[Any] | str) -> Lister[Any]:
        """The lister of a kind.

        Raises:
            UndeclaredKind: its informer was never requested.
        """
        kind = _kind(kind)
        entry = self._entries.get(kind)
        if entry is None:
            raise UndeclaredKind(kind.kind)
        return entry.informer.lister

    def start(self, group: asyncio.TaskGroup) -> None:
        """Run every informer that is not running yet."""
        for entry in self._entries.values():
            if entry.task is None:
                informer = entry.informer
                entry.task = group.create_task(informer.run(), name=f"informer {informer.name}")

    async def wait_for_sync(self, timeout_s: float) -> None:
        """Wait until all started informers and handlers have synced; else `DeadlineExceeded`."""
        started = self.started()
        try:
            async with asyncio.timeout(timeout_s):
                for informer in started:
                    await informer.wait_for_sync()
        except TimeoutError:
            missing = ", ".join(
                f"{informer.name} ({informer.reflector.last_error or 'still listing'})"
                for informer in started
                if not informer.has_synced
            )
            raise DeadlineExceeded(
                f"no complete list within {timeout_s:g} s of: {missing}", sent=True
            ) from None

    def blind(self) -> str | None:
        """Started informers that may lag for too long, and why; None if all are current."""
        blind = [
            f"{informer.name} ({informer.reflector.last_error or 'watch is silent'})"
            for informer in self.started()
            if informer.unconfirmed_s() > BLIND_AFTER_S
        ]
        return f"not current for {BLIND_AFTER_S:g} s: {', '.join(blind)}" if blind else None

    def object_count(self) -> int:
        """Number of cached objects of all kinds."""
        return sum([len(entry.informer.store) for entry in self._entries.values()])

    def kinds(self) -> list[Kind[Any]]:
        """The kinds whose informers were requested."""
        return list(self._entries)

    def informers(self) -> list[AnyInformer]:
        return [entry.informer for entry in list(self._entries.values())]

    def by_kind(self) -> dict[Kind[Any], AnyInformer]:
        return {kind: entry.informer for kind, entry in list(self._entries.items())}

    def started(self) -> list[AnyInformer]:
        return [entry.informer for entry in list(self._entries.values()) if entry.task is not None]

    async def stop(self) -> None:
        """Stop all informers; their stores stay readable."""
        tasks = [entry.task for entry in self._entries.values() if entry.task is not None]
        for entry in self._entries.values():
            entry.task = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _kind(kind: type[Any] | Kind[Any] | str) -> Kind[Any]:
    if isinstance(kind, Kind):
        return kind
    if not isinstance(kind, str):
        return kind_of(kind)
    named = find_event_resource(kind)
    if named is None:
        raise LookupError(
            f'"{kind}" names no API kind; custom resources go by plural.version.group'
        )
    return named


def _how_it_is_served(kind: Kind[Any]) -> str:
    return (
        f"an API server needs --runtime-config={kind.group}/{kind.version}=true and the feature "
        "gate of the kind; nothing is scheduled until then, or with the gate off here"
    )
