"""The verbs on stored objects: metadata, admission, defaults, validation and conflicts.

Every write passes through here, over HTTP (`handlers`) or from a controller (`client`). Each verb
either raises and changes nothing, or makes exactly one change, after its last step (`steps`).

The registry takes ownership of objects passed to a verb; returned entries are shared and frozen.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

from kubesched.api import field_errors
from kubesched.api.field_errors import FieldError, required
from kubesched.api.quantity import QuantityError
from kubesched.base.clock import Clock
from kubesched.base.errors import BadRequest
from kubesched.playground.apimachinery.bodies import unreadable
from kubesched.playground.apimachinery.catalog import ResourceCatalog, ResourceInfo
from kubesched.playground.apimachinery.failures import (
    already_exists,
    forbidden,
    invalid,
    not_found,
    other_uid,
    stale,
)
from kubesched.playground.apimachinery.managed_fields.managers import (
    Manager,
    after_update,
    creator,
    parse_managers,
)
from kubesched.playground.apimachinery.managed_fields.paths import Layout, kind_layout
from kubesched.playground.apimachinery.object_meta import (
    validate_metadata,
    validate_metadata_update,
)
from kubesched.playground.apimachinery.objects import Json, JsonObject, timestamp
from kubesched.playground.apimachinery.releases import Release
from kubesched.playground.apimachinery.schema.table import type_of_kind
from kubesched.playground.apimachinery.validation import IS_IMMUTABLE
from kubesched.playground.registry.deletion import (
    NO_DELETE_OPTIONS,
    DeleteOptions,
    after_delete,
    check_preconditions,
    is_ready_to_go,
)
from kubesched.playground.registry.steps import Overtaken, Steps
from kubesched.playground.registry.strategy import (
    GENERIC,
    GENERIC_CUSTOM,
    WRITABLE_METADATA,
    Defaulter,
    Strategy,
)
from kubesched.playground.storage.store import Collection, Entry, Store

T = TypeVar("T")

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # no vowels: a random suffix never spells a word
_GENERATE_ATTEMPTS = 8
_MAX_GENERATED_BASE = 58


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of a write request."""

    manager: str = ""
    """Field manager of this write; if empty, field ownership is not tracked."""
    dry_run: bool = False


NO_OPTIONS = WriteOptions()


class AdmissionRequest(NamedTuple):
    """A write that is about to be stored."""

    registry: RestStorage
    resource: ResourceInfo
    obj: JsonObject
    old: JsonObject | None
    subresource: str
    options: WriteOptions


AdmissionCheck: TypeAlias = Callable[[AdmissionRequest], None]


class RestStorage:
    """All verbs over one store, like upstream's REST storage."""

    def __init__(
        self,
        store: Store,
        catalog: ResourceCatalog,
        *,
        clock: Clock,
        rng: random.Random,
        kinds: dict[str, Strategy],
        release: Release,
    ) -> None:
        self.store = store
        self.release = release
        self.catalog = catalog
        self.clock = clock
        self.rng = rng
        self._kinds = kinds
        self.custom_strategies: dict[ResourceInfo, Strategy] = {}
        self.checks: list[AdmissionCheck] = []
        """Run last, after the kind's own rules, except for a status; a check raises to reject."""
        self.admits_service_accounts = False
        """Whether pods need an existing service account, and get its token mounted."""
        self._derived: dict[str, tuple[int, Any]] = {}

    # -- reading -----------------------------------------------------------------------------------

    def strategy(self, resource: ResourceInfo) -> Strategy:
        known = self._kinds.get(resource.storage_key)
        if known is not None:
            return known
        if resource.custom:
            return self.custom_strategies.get(resource, GENERIC_CUSTOM)
        return GENERIC

    def derived(self, name: str, resource: str, compute: Callable[[Collection], T]) -> T:
        """A value computed from a whole collection, cached until the collection changes."""
        collection = self.store.collection(resource)
        known = self._derived.get(name)
        if known is None or known[0] != collection.changed_at:
            known = self._derived[name] = (collection.changed_at, compute(collection))
        result: T = known[1]
        return result

    def get(self, resource: ResourceInfo, namespace: str, name: str) -> Entry:
        entry = self.store.get(resource.storage_key, namespace, name)
        if entry is None:
            raise not_found(resource, name)
        return entry

    # -- creating ----------------------------------------------------------------------------------

    def create(
        self,
        resource: ResourceInfo,
        namespace: str,
        obj: JsonObject,
        options: WriteOptions = NO_OPTIONS,
        *,
        managers: tuple[Manager, ...] | None = None,
    ) -> Steps[Entry]:
        """Create an object; without `managers` (given by apply), the writer owns all fields."""
        metadata = self.own_metadata(resource, namespace, obj)
        if metadata.get("resourceVersion"):
            raise BadRequest("resourceVersion should not be set on objects to be created")
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                name_required = required("metadata.name", "name or generateName is required")
                raise invalid(resource, "", [name_required])
            self._generate_name(resource, metadata)
        strategy = self.strategy(resource)
        for field in (
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
            "managedFields",
        ):
            metadata.pop(field, None)
        metadata["uid"] = self.new_uid()
        metadata["creationTimestamp"] = timestamp(self.clock.now())
        if strategy.tracks_generation:
            metadata["generation"] = 1
        if "status" in resource.subresources and not strategy.keeps_status_on_create:
            obj.pop("status", None)
        self._default(resource, strategy.default, obj)
        if managers is None:
            mine = self._writer(resource, options)
            own = partial(creator, self.layout(resource), obj, mine)
            managers = (yield own) if options.manager else ()
        self.catalog.get(resource.key)  # its definition may have gone meanwhile
        self._require_live_namespace(resource, metadata)
        strategy.admit(self, obj)
        self._validate(resource, obj, strategy)
        if self._exists(resource, metadata):
            raise already_exists(resource, metadata["name"])
        self._check(resource, obj, None, "", options)
        return self._put(resource, obj, managers, options)

    def create_like(self, resource: ResourceInfo, first: Entry, options: WriteOptions) -> Entry:
        """Create another object from the body of `first`: generated name, same second."""
        metadata = dict(first.obj["metadata"])
        self._generate_name(resource, metadata)
        metadata["uid"] = self.new_uid()
        obj = {**first.obj, "metadata": metadata}
        self._require_live_namespace(resource, metadata)
        if self._exists(resource, metadata):
            raise already_exists(resource, metadata["name"])
        self._check(resource, obj, None, "", options)
        return self._put(resource, obj, first.managers, options)

    def _generate_name(self, resource: ResourceInfo, metadata: JsonObject) -> None:
        prefix = metadata["generateName"][:_MAX_GENERATED_BASE]
        for _attempt in range(_GENERATE_ATTEMPTS):
            metadata["name"] = prefix + "".join(self.rng.choices(_SUFFIX_ALPHABET, k=5))
            if not self._exists(resource, metadata):
                return

    def _exists(self, resource: ResourceInfo, metadata: JsonObject) -> bool:
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        return self.store.get(resource.storage_key, namespace, name) is not None

    @staticmethod
    def own_metadata(
        resource: ResourceInfo, namespace: str, obj: JsonObject, name: str = ""
    ) -> JsonObject:
        """The object's metadata, with namespace and name of the request filled in."""
        metadata: JsonObject | None = obj.get("metadata")
        if metadata is None:
            metadata = obj["metadata"] = {}
        stated = metadata.get("name")
        if name and not stated:
            metadata["name"] = name
        elif name and stated != name:
            raise BadRequest(
                f"the name of the object ({stated}) does not match the name on the URL ({name})"
            )
        if not resource.namespaced:
            metadata.pop("namespace", None)
            return metadata
        stated = metadata.get("namespace")
        if not stated:
            metadata["namespace"] = namespace
        elif stated != namespace:
            raise BadRequest(
                "the namespace of the provided object does not match"
                " the namespace sent on the request"
            )
        return metadata

    def _require_live_namespace(self, resource: ResourceInfo, metadata: JsonObject) -> None:
        if not resource.namespaced:
            return
        namespace = metadata["namespace"]
        entry = self.store.get("namespaces", "", namespace)
        if entry is None:
            raise not_found(self.catalog.get("namespaces"), namespace)
        if entry.obj["metadata"].get("deletionTimestamp") is not None:
            why = (
                f"unable to create new content in namespace {namespace}"
                " because it is being terminated"
            )
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise forbidden(resource, metadata["name"], why, cause)

    # -- replacing ---------------------------------------------------------------------------------

    def update(
        self,
        resource: ResourceInfo,
        namespace: str,
        name: str,
        obj: JsonObject,
        options: WriteOptions = NO_OPTIONS,
        *,
        subresource: str = "",
    ) -> Steps[Entry]:
        """Replace an object or its status; a stated resourceVersion must be current."""
        metadata = self.own_metadata(resource, namespace, obj, name)
        old = self.get(resource, namespace, name)
        self.check_version(resource, old, metadata)
        uid = metadata.get("uid")
        if uid and uid != old.obj["metadata"]["uid"]:
            raise other_uid(resource, name, uid, old.obj["metadata"]["uid"])
        return self.replace(resource, old, obj, options, subresource=subresource)

    def check_version(self, resource: ResourceInfo, old: Entry, metadata: JsonObject) -> None:
        """Require the current resourceVersion; empty and 0 match any, if the kind allows it."""
        stated = metadata.get("resourceVersion") or "0"
        name = old.obj["metadata"]["name"]
        if not stated.isdigit():
            detail = "must be a decimal number"
            problem = field_errors.invalid("metadata.resourceVersion", stated, detail)
            raise invalid(resource, name, [problem])
        if int(stated) == 0:
            if not self.strategy(resource).allows_unconditional_update:
                detail = "must be specified for an update"
                problem = field_errors.invalid("metadata.resourceVersion", 0, detail)
                # Upstream: this message names the resource and not the kind.
                raise invalid(replace(resource, kind=resource.plural), name, [problem])
        elif int(stated) != old.revision:
            raise stale(resource, name)

    def replace(
        self,
        resource: ResourceInfo,
        old: Entry,
        obj: JsonObject,
        options: WriteOptions = NO_OPTIONS,
        *,
        subresource: str = "",
        managers: tuple[Manager, ...] | None = None,
    ) -> Steps[Entry]:
        """Store `obj` as the next version of `old`, after all checks, unless unchanged."""
        strategy = self.strategy(resource)
        sent = obj["metadata"].pop("managedFields", None)
        self._carry_over_metadata(old.obj["metadata"], obj["metadata"])
        if subresource == "status":
            self._default(resource, strategy.default_status, obj)
            obj = self._status_replacement(strategy, old.obj, obj)
            causes = self._status_problems(strategy, old.obj, obj)
            causes += validate_metadata(resource, obj, strategy.name_rule)
        elif subresource in strategy.subresources:
            write = strategy.subresources[subresource]
            obj = write.merge(obj, old.obj)
            self._default(resource, strategy.default, obj)
            self._count_generation(strategy, old.obj, obj)
            causes = [*write.validate(obj, old.obj)]
            causes += validate_metadata(resource, obj, strategy.name_rule)
        else:
            if strategy.spec_subresource not in ("", subresource):
                obj["spec"] = old.obj.get("spec", {})
            causes = self._prepare_replacement(resource, strategy, old.obj, obj)
        causes += validate_metadata_update(obj, old.obj)
        if causes:
            raise invalid(resource, obj["metadata"]["name"], causes)
        if managers is None:
            after = self._after_update
            managers = yield partial(after, resource, old, obj, options, subresource, sent)
        known = old.obj["metadata"]
        if self.get(resource, known.get("namespace", ""), known["name"]) is not old:
            why = stale(resource, known["name"])
            raise Overtaken(why.message, details=why.details)
        self._check(resource, obj, old.obj, subresource, options)
        return self._finish(resource, old, obj, options, managers)

    def replace_status(
        self, resource: ResourceInfo, old: Entry, status: JsonObject, options: WriteOptions
    ) -> Entry:
        """Fast `replace` of the status for in-process components; takes over `status`.

        Skips the steps that can fail only for external objects: decoding, copying and metadata
        checks.
        """
        strategy = self.strategy(resource)
        obj = {**old.obj, "metadata": dict(old.obj["metadata"]), "status": status}
        self._default(resource, strategy.default_status, obj)
        causes = self._status_problems(strategy, old.obj, obj)
        if causes:
            raise invalid(resource, obj["metadata"]["name"], causes)
        managers = self._after_update(resource, old, obj, options, "status")
        return self._finish(resource, old, obj, options, managers)

    def _status_problems(
        self, strategy: Strategy, old: JsonObject, obj: JsonObject
    ) -> list[FieldError]:
        strategy.prepare_status_update(self, obj, old)
        return [*strategy.validate_status(obj), *strategy.validate_status_update(obj, old)]

    def _carry_over_metadata(self, old: JsonObject, new: JsonObject) -> None:
        """Copy from the old version the metadata that clients cannot change."""
        new.pop("selfLink", None)
        for field in (
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "resourceVersion",
            "generateName",
        ):
            _take_over(old, new, field)

    def _status_replacement(
        self, strategy: Strategy, old: JsonObject, obj: JsonObject
    ) -> JsonObject:
        metadata = dict(old["metadata"])
        for field in WRITABLE_METADATA:
            if field not in strategy.status_keeps_metadata:
                _take_over(obj["metadata"], metadata, field)
        replacement = {**old, "metadata": metadata}
        _take_over(obj, replacement, "status")
        return replacement

    def _prepare_replacement(
        self, resource: ResourceInfo, strategy: Strategy, old: JsonObject, obj: JsonObject
    ) -> list[FieldError]:
        if "status" in resource.subresources:
            _take_over(old, obj, "status")
        self._default(resource, strategy.default, obj)
        strategy.prepare_update(self, obj, old)
        self._count_generation(strategy, old, obj)
        causes = [*validate_metadata(resource, obj, strategy.name_rule)]
        if strategy.has_immutable_spec:
            if obj.get("spec") != old.get("spec"):
                causes.append(field_errors.invalid("spec", obj.get("spec"), IS_IMMUTABLE))
        elif not strategy.validates_only_creation:
            causes += strategy.validate(obj)
        return [*causes, *strategy.validate_update(obj, old)]

    @staticmethod
    def _count_generation(strategy: Strategy, old: JsonObject, obj: JsonObject) -> None:
        if strategy.tracks_generation and _desired_state(obj) != _desired_state(old):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def _finish(
        self,
        resource: ResourceInfo,
        old: Entry,
        obj: JsonObject,
        options: WriteOptions,
        managers: tuple[Manager, ...],
    ) -> Entry:
        """Write the new version, or remove the object if its last finalizer was removed."""
        if obj == old.obj and managers == old.managers:
            return old
        if is_ready_to_go(obj):
            if options.dry_run:
                return old
            return self.store.remove(
                resource.storage_key, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
            )
        return self._put(resource, obj, managers, options)

    def modify(
        self, resource: ResourceInfo, old: Entry, change: Callable[[JsonObject], JsonObject]
    ) -> Entry:
        """Store the result of `change` unchecked; it should share unchanged parts."""
        obj = change(old.obj)
        if obj is old.obj:
            return old
        if obj["metadata"] is old.obj["metadata"]:
            obj["metadata"] = dict(obj["metadata"])
        return self._put(resource, obj, old.managers, NO_OPTIONS)

    # -- deleting ----------------------------------------------------------------------------------

    def delete(
        self,
        resource: ResourceInfo,
        namespace: str,
        name: str,
        options: DeleteOptions = NO_DELETE_OPTIONS,
    ) -> tuple[Entry, bool]:
        """Delete an object or mark it for deletion; returns whether it was removed."""
        old = self.get(resource, namespace, name)
        check_preconditions(resource, old, options)
        obj, is_gone = after_delete(
            resource,
            old.obj,
            options,
            self.strategy(resource).default_propagation,
            self.clock.now(),
        )
        if is_gone:
            if options.dry_run:
                return old, True
            return self.store.remove(resource.storage_key, namespace, name, obj), True
        if obj == old.obj:
            return old, False
        return self._put(resource, obj, old.managers, WriteOptions(dry_run=options.dry_run)), False

    # -- ownership of fields -----------------------------------------------------------------------

    def layout(self, resource: ResourceInfo) -> Layout:
        """The merge layout of this resource, in its stored form."""
        if resource.custom:
            return self.strategy(resource).layout
        stored = self.catalog.get(resource.storage_key)
        object_type = type_of_kind(stored.group, stored.kind)
        assert object_type is not None, stored.key
        return kind_layout(object_type)

    def _writer(
        self, resource: ResourceInfo, options: WriteOptions, subresource: str = ""
    ) -> Manager:
        """The managedFields entry of the writer, without fields."""
        return Manager(
            name=options.manager,
            operation="Update",
            api_version=resource.api_version,
            time=timestamp(self.clock.now()),
            subresource=subresource,
        )

    def _after_update(
        self,
        resource: ResourceInfo,
        old: Entry,
        new: JsonObject,
        options: WriteOptions,
        subresource: str,
        sent: Json = None,
    ) -> tuple[Manager, ...]:
        managers = old.managers if sent is None else parse_managers(sent)
        if not options.manager:
            return managers
        mine = self._writer(resource, options, subresource)
        return after_update(managers, self.layout(resource), old.obj, new, mine)

    # -- bookkeeping -------------------------------------------------------------------------------

    def new_uid(self) -> str:
        """A random version 4 UUID, from the injected generator."""
        digits = f"{self.rng.getrandbits(128):032x}"
        variant = "89ab"[int(digits[16], 16) & 3]
        return (
            f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
        )

    @staticmethod
    def _default(resource: ResourceInfo, defaulter: Defaulter, obj: JsonObject) -> None:
        """Fill in defaults; rejects an unreadable quantity, as a decoder would."""
        try:
            defaulter(obj)
        except QuantityError as error:
            raise BadRequest(unreadable(resource, str(error))) from None

    def _validate(self, resource: ResourceInfo, obj: JsonObject, strategy: Strategy) -> None:
        causes = [*validate_metadata(resource, obj, strategy.name_rule), *strategy.validate(obj)]
        if causes:
            raise invalid(resource, obj["metadata"].get("name", ""), causes)

    def _check(
        self,
        resource: ResourceInfo,
        obj: JsonObject,
        old: JsonObject | None,
        subresource: str,
        options: WriteOptions,
    ) -> None:
        if subresource == "status":
            return
        for check in self.checks:
            check(AdmissionRequest(self, resource, obj, old, subresource, options))

    def _put(
        self,
        resource: ResourceInfo,
        obj: JsonObject,
        managers: tuple[Manager, ...],
        options: WriteOptions,
    ) -> Entry:
        if options.dry_run:
            return Entry(obj, self.store.revision, managers)
        return self.store.put(resource.storage_key, obj, managers)


def _take_over(source: JsonObject, target: JsonObject, field: str) -> None:
    """Copy a field from source to target, or remove it if the source lacks it."""
    if field in source:
        target[field] = source[field]
    else:
        target.pop(field, None)


def _desired_state(obj: JsonObject) -> JsonObject:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}
