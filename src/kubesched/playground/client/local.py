"""In-process API for controllers, kubelets and simulation.

Admission, defaulting, validation and conflicts are the same as over HTTP, without a socket or an
event loop: every verb is synchronous and complete when it returns, or raises a
`kubesched.base.errors.ApiError` and changes nothing.

Returned objects are shared with the store and must not be changed. Objects passed in are copied.
"""

from __future__ import annotations

import builtins
import contextlib
import random
from collections.abc import Callable
from typing import Literal, TypeAlias

from kubesched.base.clock import Clock
from kubesched.base.errors import NotFound
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.playground.apimachinery.bodies import check_types, to_stored
from kubesched.playground.apimachinery.catalog import ResourceCatalog, ResourceInfo
from kubesched.playground.apimachinery.objects import (
    ChangeType,
    JsonObject,
    copy_json,
    encode,
    name_of,
    namespace_of,
    uid_of,
)
from kubesched.playground.apimachinery.releases import Release
from kubesched.playground.apimachinery.selectors import (
    combine,
    compile_field_selector,
    compile_label_selector,
)
from kubesched.playground.apimachinery.serialization import decode_json
from kubesched.playground.control_plane import build_registry
from kubesched.playground.registry import binding
from kubesched.playground.registry.deletion import DeleteOptions
from kubesched.playground.registry.patching import PatchKind, patch_object
from kubesched.playground.registry.repeated_creates import RepeatedCreates
from kubesched.playground.registry.rest_storage import RestStorage, WriteOptions
from kubesched.playground.registry.steps import at_once
from kubesched.playground.registry.strategy import Propagation
from kubesched.playground.storage.store import Change, Store

Resource: TypeAlias = ResourceInfo | str
Subresource: TypeAlias = Literal["", "status", "scale", "resize"]
Listener: TypeAlias = Callable[[ChangeType, JsonObject, JsonObject | None], None]


class LocalApi:
    """Synchronous verbs and ordered change notifications over one registry."""

    def __init__(self, registry: RestStorage, *, manager: str = "kubesched") -> None:
        self.registry = registry
        self._options = WriteOptions(manager=manager)
        self._creates = RepeatedCreates(registry)

    @classmethod
    def in_memory(
        cls, *, clock: Clock, rng: random.Random, gates: FeatureGates = DEFAULT_GATES
    ) -> LocalApi:
        """A new in-memory cluster with the default namespaces."""
        return cls(build_registry(Store(), clock=clock, rng=rng, gates=gates))

    def as_manager(self, manager: str) -> LocalApi:
        """The same API with another field manager."""
        return LocalApi(self.registry, manager=manager)

    @property
    def catalog(self) -> ResourceCatalog:
        """The resources currently served."""
        return self.registry.catalog

    @property
    def release(self) -> Release:
        """The Kubernetes release that this cluster is."""
        return self.registry.release

    def get(self, resource: Resource, namespace: str | None, name: str) -> JsonObject:
        """The object, or `NotFound`."""
        return self.registry.get(self._resource(resource), namespace or "", name).obj

    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> tuple[builtins.list[JsonObject], int]:
        """Matching objects in key order, and their revision; None means all namespaces."""
        info = self._resource(resource)
        matches = combine(
            compile_label_selector(label_selector), compile_field_selector(info, field_selector)
        )
        entries = self.registry.store.collection(info.storage_key).entries(namespace)
        objects = [entry.obj for entry in entries if matches is None or matches(entry.obj)]
        return objects, self.registry.store.revision

    def count(self, resource: Resource) -> int:
        """Number of objects in all namespaces."""
        return self.registry.store.collection(self._resource(resource).storage_key).count

    def create(
        self, resource: Resource, obj: JsonObject, namespace: str | None = None
    ) -> JsonObject:
        """Create an object; `namespace` defaults to the object's own."""
        info = self._resource(resource)
        return self._creates.create(info, namespace or "", _encode(info, obj), self._options).obj

    def create_composed(self, resource: Resource, obj: JsonObject, namespace: str) -> JsonObject:
        """Create an object that this process composed from values of the right types.

        It is neither type-checked nor copied, must not contain nulls, and must not be changed
        afterwards.
        """
        info = self._resource(resource)
        return at_once(self.registry.create(info, namespace, obj, self._options)).obj

    def update(self, resource: Resource, obj: JsonObject) -> JsonObject:
        """Replace all but the status; `Conflict` if a stated `resourceVersion` is not current."""
        return self._update(resource, obj, "")

    def finalize(self, namespace: JsonObject) -> JsonObject:
        """Replace a namespace's spec finalizers; removing the last completes its deletion."""
        info = self._resource("namespaces")
        obj = copy_json(namespace)
        steps = self.registry.update(info, "", name_of(obj), obj, subresource="finalize")
        return at_once(steps).obj

    def update_status(self, resource: Resource, obj: JsonObject) -> JsonObject:
        """Replace only the status; `Conflict` if a stated `resourceVersion` is not current."""
        return self._update(resource, obj, "status")

    def write_status(self, resource: Resource, obj: JsonObject, status: JsonObject) -> JsonObject:
        """Replace the status of an object read from this API, if it differs.

        Raises `Conflict` if there is a newer version. `status` is neither checked nor copied, and
        must not be changed afterwards.
        """
        if (obj.get("status") or {}) == status:
            return obj
        info = self._resource(resource)
        old = self.registry.get(info, namespace_of(obj), name_of(obj))
        self.registry.check_version(info, old, obj["metadata"])
        return self.registry.replace_status(info, old, status, self._options).obj

    def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        patch: JsonObject | builtins.list[JsonObject],
        kind: PatchKind = "merge",
        subresource: Subresource = "",
    ) -> JsonObject:
        info = self._resource(resource)
        steps = patch_object(
            self.registry,
            info,
            namespace or "",
            name,
            lambda: patch,
            kind,
            self._options,
            subresource=subresource,
        )
        return at_once(steps)[0].obj

    def patch_object(
        self,
        resource: Resource,
        obj: JsonObject,
        patch: JsonObject,
        subresource: Subresource = "",
    ) -> JsonObject:
        """Patch an object read from this API."""
        return self.patch(resource, namespace_of(obj), name_of(obj), patch, subresource=subresource)

    def remove_finalizer(self, resource: Resource, obj: JsonObject, finalizer: str) -> None:
        """Remove a finalizer of an object read from this API, unless the object is gone."""
        kept = [item for item in obj["metadata"].get("finalizers") or () if item != finalizer]
        patch = {"metadata": {"uid": uid_of(obj), "finalizers": kept or None}}
        with contextlib.suppress(NotFound):
            self.patch_object(resource, obj, patch)

    def delete_object(
        self,
        resource: Resource,
        obj: JsonObject,
        *,
        grace_period_s: int | None = None,
        propagation: Propagation | None = None,
    ) -> bool:
        """Delete an object read from this API, matched by uid; False if it no longer exists."""
        try:
            self.delete(
                resource,
                namespace_of(obj),
                name_of(obj),
                grace_period_s=grace_period_s,
                uid=uid_of(obj),
                propagation=propagation,
            )
        except NotFound:
            return False
        return True

    def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        grace_period_s: int | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation | None = None,
    ) -> JsonObject:
        """Delete an object or mark it for deletion; returns its last state."""
        options = DeleteOptions(
            grace_period_s=grace_period_s,
            uid=uid,
            resource_version=resource_version,
            propagation=propagation,
        )
        entry, _is_gone = self.registry.delete(
            self._resource(resource), namespace or "", name, options
        )
        return entry.obj

    def bind(self, namespace: str, name: str, node_name: str, *, uid: str | None = None) -> None:
        """Bind a pod to a node, like the `binding` subresource."""
        binding.bind(self.registry, namespace, name, node_name, uid=uid)

    def subscribe(
        self, resource: Resource, listener: Listener, *, replay: bool = True
    ) -> Callable[[], None]:
        """Call `listener(type, object, old object or None)` for every change, in revision order.

        With `replay`, existing objects arrive first, as ADDED. Calls happen synchronously in the
        write that caused them, so a listener should only enqueue work and return. A listener may
        write; its change is delivered after the current one has reached all listeners. The returned
        function ends the subscription.
        """
        store = self.registry.store
        key = self._resource(resource).storage_key
        # For a listener that subscribes during a notification, the replay already includes the
        # changes still queued.
        known = store.revision

        def on_change(change: Change) -> None:
            if change.revision > known:
                listener(
                    change.type,
                    change.entry.obj,
                    change.old.obj if change.old is not None else None,
                )

        present = list(store.collection(key).entries()) if replay else []
        unsubscribe = store.subscribe(key, on_change)
        for entry in present:
            listener("ADDED", entry.obj, None)
        return unsubscribe

    def _update(self, resource: Resource, obj: JsonObject, subresource: str) -> JsonObject:
        info = self._resource(resource)
        mine = self._own(info, obj)
        metadata = mine["metadata"]
        where = (info, metadata.get("namespace", ""), metadata.get("name", ""))
        steps = self.registry.update(*where, mine, self._options, subresource=subresource)
        return at_once(steps).obj

    def _resource(self, resource: Resource) -> ResourceInfo:
        return self.registry.catalog.get(resource)

    def _own(self, info: ResourceInfo, obj: JsonObject) -> JsonObject:
        """Copy an object for the store, checked like a request body."""
        body = _encode(info, obj)
        check_types(info, body)
        mine: JsonObject = decode_json(body)
        return to_stored(info, mine)


def _encode(info: ResourceInfo, obj: JsonObject) -> bytes:
    return encode({"apiVersion": info.api_version, "kind": info.kind, "metadata": {}, **obj})
