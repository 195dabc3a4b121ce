"""Creates a workload's objects on an API server, concurrently or at a given rate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kubesched.api import codec
from kubesched.api.kinds import PODS, Kind, find_kind
from kubesched.api.meta import DeleteOptions, Record
from kubesched.api.names import key_of_manifest
from kubesched.base.clock import Clock
from kubesched.base.errors import AlreadyExists, ApiError, Forbidden, KubeschedError, TransportError
from kubesched.client.patch import merge_patch
from kubesched.client.rest import RestClient
from kubesched.insight.state.claim_controller import template_entries
from kubesched.lab.benchmarking.templates import Manifest
from kubesched.lab.claims import Claims

CREATORS = 32
"""Concurrent requests; scheduler_perf uses 30."""

_CLASS_TRIES = 100
_CLASS_PAUSE_S = 0.1
"""Ten seconds for a new PriorityClass to reach the API server's cache."""

_STATUS_APART = frozenset(("PersistentVolume", "PersistentVolumeClaim"))
"""Kinds whose status the API server ignores on creation."""


class Creator:
    """Creates manifests. An error names the object and ends the workload."""

    def __init__(self, client: RestClient, clock: Clock) -> None:
        self._client = client
        self._now = clock.monotonic
        self._priority_classes: set[str] = set()
        self.claims = Claims(client)
        self._account: str | None = (
            None  # assigned to pods by the server; unknown until one is replaced
        )

    async def create_all(
        self,
        manifests: Iterable[Manifest],
        *,
        per_second: float = 0.0,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Create all objects, at full speed or at a rate, roughly in the given order.

        `check` is called periodically.
        """
        began = self._now()
        due = enumerate(iter(manifests))
        async with asyncio.TaskGroup() as group:
            for _ in range(CREATORS):
                group.create_task(self._work_off(due, began, per_second, check))

    async def _work_off(
        self,
        due: Iterator[tuple[int, Manifest]],
        began: float,
        per_second: float,
        check: Callable[[], None],
    ) -> None:
        for number, manifest in due:
            if per_second:
                await asyncio.sleep(max(0.0, began + number / per_second - self._now()))
            if number % 256 == 0:
                check()
            await self.create(manifest)

    async def create(self, manifest: Manifest, *, may_exist: bool = False) -> None:
        has_priority = (manifest.get("spec") or {}).get("priority") is not None
        if manifest["kind"] in ("Pod", "PodGroup") and has_priority:
            manifest = await self._with_priority_class(manifest)
        kind, metadata = kind_of_manifest(manifest), manifest["metadata"]
        path = kind.collection_path(metadata.get("namespace", ""))
        try:
            answer = await self._client.post_raw(path, codec.encode(manifest))
            self.claims.learn([manifest])
            if manifest["kind"] == "Pod" and template_entries(manifest):
                await self.claims.make_for(codec.decode(answer, dict[str, Any]))
            if manifest["kind"] in _STATUS_APART and manifest.get("status"):
                patch = merge_patch({"status": manifest["status"]})
                name, namespace = metadata["name"], metadata.get("namespace", "")
                await self._client.patch(kind, name, namespace, patch, subresource="status")
        except AlreadyExists as error:
            if not may_exist:
                raise KubeschedError(f"cannot create {described(manifest)}: {error}") from error
        except (ApiError, TransportError) as error:
            raise KubeschedError(f"cannot create {described(manifest)}: {error}") from error

    async def _with_priority_class(self, manifest: Manifest) -> Manifest:
        """Convert a numeric priority to a class, which priority admission requires."""
        spec = dict(manifest["spec"])
        value = spec.pop("priority")
        if value and not spec.get("priorityClassName"):
            name = f"bench-{value}" if value > 0 else f"bench-minus-{-value}"
            if name not in self._priority_classes:
                await self._create_priority_class(name, value)
            spec["priorityClassName"] = name
        return {**manifest, "spec": spec}

    async def _create_priority_class(self, name: str, value: int) -> None:
        made: Manifest = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        await self.create(made, may_exist=True)
        # Admission reads classes from its own cache; a dry-run pod shows when the class is there.
        probe: Manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"probe-{name}", "namespace": "default"},
            "spec": {
                "priorityClassName": name,
                "containers": [{"name": "probe", "image": "registry.k8s.io/pause:3.10"}],
            },
        }
        for remaining in reversed(range(_CLASS_TRIES)):
            try:
                path = f"{PODS.collection_path('default')}?dryRun=All"
                await self._client.post_raw(path, codec.encode(probe))
                break
            except Forbidden as error:
                if not remaining:
                    raise KubeschedError(
                        f"PriorityClass {name} is not accepted: {error}"
                    ) from error
                await asyncio.sleep(_CLASS_PAUSE_S)
            except (ApiError, TransportError) as error:
                raise KubeschedError(f"PriorityClass {name}: {error}") from error
        self._priority_classes.add(name)

    async def replace(self, manifest: Manifest, subresources: Sequence[str]) -> None:
        """Replace an existing object, then its status, regardless of revision."""
        kind, metadata = kind_of_manifest(manifest), manifest["metadata"]
        path = kind.object_path(metadata["name"], metadata.get("namespace", ""))
        if manifest["kind"] == "Pod":
            manifest = await self._with_account(manifest, path)
        body = codec.encode(manifest)
        # Upstream: with subresources named, they are written and the object itself is not.
        targets = ["/".join((path, *subresources))]
        if "status" in kind.record.__struct_fields__:
            targets.append(f"{path}/status")
        try:
            for target in targets:
                await self._client.put_raw(f"{target}?fieldValidation=Strict", body)
        except (ApiError, TransportError) as error:
            what = " ".join((described(manifest), *subresources))
            raise KubeschedError(f"cannot update {what}: {error}") from error

    async def _with_account(self, manifest: Manifest, path: str) -> Manifest:
        """Keep the service account if the server assigns one; workload files have none."""
        try:
            if self._account is None:
                pod = codec.decode(await self._client.get_raw(path), dict[str, Any])
                self._account = str(pod.get("spec", {}).get("serviceAccountName", ""))
        except (ApiError, TransportError) as error:
            raise KubeschedError(f"cannot read {described(manifest)}: {error}") from error
        if not self._account:
            return manifest
        return {**manifest, "spec": {"serviceAccountName": self._account, **manifest["spec"]}}

    async def delete_pods(self, namespace: str) -> None:
        """Delete all pods of a namespace immediately (there is no kubelet); their claims stay."""
        try:
            options = DeleteOptions(grace_period_seconds=0)
            await self._client.delete_collection(PODS, namespace, options=options)
        except (ApiError, TransportError) as error:
            raise KubeschedError(f"cannot delete the pods of {namespace}: {error}") from error

    async def delete(self, manifest: Manifest) -> None:
        kind, metadata = kind_of_manifest(manifest), manifest["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace", "")
        try:
            await self._client.delete(kind, name, namespace)
        except (ApiError, TransportError) as error:
            raise KubeschedError(f"cannot delete {described(manifest)}: {error}") from error
        if manifest["kind"] == "Pod":
            await self.claims.delete_of(namespace, name)


def kind_of_manifest(manifest: Manifest) -> Kind[Record]:
    """Raises `KubeschedError` for unknown kinds."""
    kind = find_kind(manifest["apiVersion"], manifest["kind"])
    if kind is None:
        raise KubeschedError(f"{described(manifest)}: {manifest['apiVersion']} is not known here")
    return kind


def described(manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    return f"{manifest['kind']} {key_of_manifest(manifest)}" if metadata else manifest["kind"]
