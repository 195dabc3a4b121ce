"""The player's view of its cluster: pods with their history, and volumes, which it controls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import msgspec

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.api.kinds import kind_of
from kubesched.api.meta import Record
from kubesched.api.names import key_of
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.base.errors import AlreadyExists
from kubesched.client.patch import merge_patch
from kubesched.client.rest import RestClient
from kubesched.plugins.helper.volumes.claims import is_fully_bound
from kubesched.testing.control_plane import ControlPlaneError
from kubesched.testing.volume_controller import bound_to, made_for, meant_by, wants_volume

R = TypeVar("R", bound=Record)


class Patience:
    """A deadline that is checked at least once a second.

    The time between two checks counts as two seconds at most: after a suspension of this process,
    events may be unread rather than missing.
    """

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._looked = asyncio.get_running_loop().time()

    def is_over(self) -> bool:
        now = asyncio.get_running_loop().time()
        self._left -= min(now - self._looked, 2.0)
        self._looked = now
        return self._left <= 0.0


class Pods:
    """The pods of the cluster with their history."""

    def __init__(self) -> None:
        self.current: dict[str, Pod] = {}
        self.versions: dict[str, list[Pod]] = {}
        self.deleted: list[str] = []
        self.groups: dict[str, list[PodGroup]] = {}
        """Pod groups with their history."""
        self.events = 0
        self._keys: dict[str, str] = {}
        self._failure: BaseException | None = None
        self._changed = asyncio.Event()

    def take(self, kind: str, pod: Pod) -> None:
        key = self._keys[pod.metadata.uid] = key_of(pod.metadata)
        if kind == "DELETED":
            self.current.pop(key, None)
            self.versions.pop(key, None)
            self.deleted.append(key)
        elif kind in ("ADDED", "MODIFIED"):
            self.current[key] = pod
            self.versions.setdefault(key, []).append(pod)
        self._noted()

    async def take_group(self, kind: str, group: PodGroup) -> None:
        if kind == "DELETED":
            self.groups.pop(group.metadata.name, None)
        elif kind in ("ADDED", "MODIFIED"):
            self.groups.setdefault(group.metadata.name, []).append(group)
        self._noted()

    def _noted(self) -> None:
        self.events += 1
        self._changed.set()

    def fail(self, error: BaseException) -> None:
        self._failure = error
        self._changed.set()

    async def change(self, timeout_s: float) -> None:
        """Wait for any pod event."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        if self._failure is not None:
            raise ControlPlaneError(f"a watch broke: {self._failure}") from self._failure

    def key_of(self, uid: str) -> str:
        """Namespace and name of a pod, which may be deleted."""
        return self._keys.get(uid, uid)

    def placements(self) -> dict[str, str]:
        return {key: pod.spec.node_name for key, pod in sorted(self.current.items())}


class Volumes:
    """Volumes and claims; binds and provisions as schedulers request."""

    def __init__(self, client: RestClient) -> None:
        self._client = client
        self._volumes: dict[str, PersistentVolume] = {}
        self._claims: dict[str, PersistentVolumeClaim] = {}
        self._answered: set[str] = set()
        """UIDs of claims that are bound or being bound here."""
        self.bound: list[str] = []
        """`claim=volume`, in order of binding."""

    async def take_volume(self, kind: str, volume: PersistentVolume) -> None:
        _keep(self._volumes, kind, volume.metadata.name, volume)
        await self._answer()

    async def take_claim(self, kind: str, claim: PersistentVolumeClaim) -> None:
        _keep(self._claims, kind, key_of(claim.metadata), claim)
        await self._answer()

    async def _answer(self) -> None:
        for claim in list(self._claims.values()):
            uid = claim.metadata.uid
            if wants_volume(claim) and f"made for {uid}" not in self._answered:
                self._answered.add(f"made for {uid}")
                path = kind_of(PersistentVolume).collection_path()
                with contextlib.suppress(AlreadyExists):
                    await self._client.post_raw(path, msgspec.json.encode(made_for(claim)))
        for volume in list(self._volumes.values()):
            meant = self._claims.get(meant_by(volume))
            if meant is None or is_fully_bound(meant) or meant.metadata.uid in self._answered:
                continue
            self._answered.add(meant.metadata.uid)
            # Before writing the claim, so that it is listed once the pod is seen bound.
            self.bound.append(f"{meant.metadata.name}={volume.metadata.name}")
            change = merge_patch(bound_to(volume.metadata.name))
            meta = meant.metadata
            await self._client.patch(PersistentVolumeClaim, meta.name, meta.namespace, change)


def _keep(known: dict[str, R], event: str, key: str, record: R) -> None:
    if event == "DELETED":
        known.pop(key, None)
    elif event in ("ADDED", "MODIFIED"):
        known[key] = record


@contextlib.asynccontextmanager
async def watched(
    client: RestClient, *, with_groups: bool = False
) -> AsyncIterator[tuple[Pods, Volumes]]:
    """Both, kept current by watches during the block."""
    pods, volumes = Pods(), Volumes(client)

    async def take_pod(kind: str, pod: Pod) -> None:
        pods.take(kind, pod)

    tasks = [
        asyncio.create_task(_follow(client, Pod, take_pod, pods.fail)),
        asyncio.create_task(_follow(client, PersistentVolume, volumes.take_volume, pods.fail)),
        asyncio.create_task(_follow(client, PersistentVolumeClaim, volumes.take_claim, pods.fail)),
    ]
    if with_groups:
        tasks.append(asyncio.create_task(_follow(client, PodGroup, pods.take_group, pods.fail)))
    try:
        yield pods, volumes
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _follow(
    client: RestClient,
    kind: type[R],
    take: Callable[[str, R], Awaitable[None]],
    fail: Callable[[BaseException], None],
) -> None:
    try:
        listed = await client.list(kind)
        for obj in listed.items:
            await take("ADDED", obj)
        version = listed.metadata.resource_version
        async with client.watch(kind, resource_version=version, timeout_s=3600) as watch:
            async for event in watch:
                await take(event.type, event.object)
        raise ControlPlaneError(f"the server ended the watch of {kind_of(kind).plural}")
    except asyncio.CancelledError:
        raise
    except Exception as error:  # wakes the waiters
        fail(error)
