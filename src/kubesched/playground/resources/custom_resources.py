"""Custom resource definitions: served as soon as stored, without version conversion.

The catalogue gets one row per served version; objects are pruned, defaulted and validated by its
structural schema. A definition is removed only after all its objects are gone.
"""

from __future__ import annotations

from dataclasses import replace

from kubesched.api.field_errors import FieldError, invalid, required
from kubesched.base.errors import Conflict, NotFound
from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.managed_fields.paths import custom_layout
from kubesched.playground.apimachinery.objects import Json, JsonObject, encode, timestamp
from kubesched.playground.apimachinery.schema.structural import fill_defaults, problems_of, prune
from kubesched.playground.apimachinery.validation import one_of
from kubesched.playground.registry.rest_storage import RestStorage
from kubesched.playground.registry.steps import at_once
from kubesched.playground.registry.strategy import GENERIC_CUSTOM, Strategy
from kubesched.playground.storage.store import Change

RULES = "x-kubernetes-validations"
UNEVALUATED = f"{RULES}: stored, the rules are not evaluated here"
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


def default_definition(obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    names.setdefault("singular", kind.lower())
    names.setdefault("listKind", f"{kind}List")
    spec.setdefault("conversion", {"strategy": "None"})
    for version in spec.get("versions") or ():
        version.setdefault("served", False)
        version.setdefault("storage", False)


def admit_definition(registry: RestStorage, obj: JsonObject) -> None:
    metadata = obj["metadata"]
    finalizers = metadata.setdefault("finalizers", [])
    if CLEANUP not in finalizers:
        finalizers.append(CLEANUP)
    obj["status"] = _status(obj, timestamp(registry.clock.now()))


def _status(obj: JsonObject, now: str) -> JsonObject:
    spec = obj["spec"]
    reasons = {
        "NamesAccepted": ("NoConflicts", "no conflicts found"),
        "Established": ("InitialNamesAccepted", "the initial names have been accepted"),
    }
    return {
        "acceptedNames": dict(spec.get("names") or {}),
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": now,
            }
            for kind, (reason, message) in reasons.items()
        ],
        "storedVersions": [
            version.get("name", "")
            for version in spec.get("versions") or ()
            if version.get("storage")
        ],
    }


def validate_definition(obj: JsonObject) -> list[FieldError]:
    spec = obj["spec"]
    group, names, versions = spec.get("group", ""), spec["names"], spec.get("versions") or []
    problems: list[FieldError] = []
    wanted = f"{names.get('plural', '')}.{group}"
    if obj["metadata"].get("name") != wanted:
        detail = 'must be spec.names.plural+"."+spec.group'
        problems.append(invalid("metadata.name", obj["metadata"].get("name", ""), detail))
    if "." not in group:
        problems.append(invalid("spec.group", group, "should be a domain with at least one dot"))
    problems += one_of(spec.get("scope", ""), ("Cluster", "Namespaced"), "spec.scope")
    problems += [
        required(f"spec.names.{field}") for field in ("plural", "kind") if not names.get(field)
    ]
    if not versions:
        problems.append(required("spec.versions"))
    elif sum(1 for other in versions if other.get("storage")) != 1:
        detail = "must have exactly one version marked as storage version"
        problems.append(invalid("spec.versions", [other.get("name") for other in versions], detail))
    for index, version in enumerate(versions):
        if not version.get("name"):
            problems.append(required(f"spec.versions[{index}].name"))
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            path = f"spec.versions[{index}].schema.openAPIV3Schema"
            problems.append(required(path, "schemas are required"))
    if (spec.get("conversion") or {}).get("strategy") != "None":
        problems += one_of(
            spec["conversion"].get("strategy", ""), ("None",), "spec.conversion.strategy"
        )
    return problems


def warnings_about(definition: JsonObject) -> list[str]:
    """Parts of a definition that are stored without effect."""
    return [UNEVALUATED] if _has_rules(definition["spec"].get("versions")) else []


def _has_rules(schema: Json) -> bool:
    if isinstance(schema, dict):
        return bool(schema.get(RULES)) or any(map(_has_rules, schema.values()))
    return isinstance(schema, list) and any(map(_has_rules, schema))


def custom_strategy(resource: ResourceInfo) -> Strategy:
    """Write strategy of a custom resource: defaults and limits of its schema."""
    schema = resource.schema
    if schema is None:
        return GENERIC_CUSTOM

    def default(obj: JsonObject) -> None:
        prune(schema, obj)
        fill_defaults(schema, obj)

    def problems(obj: JsonObject, old: JsonObject | None) -> list[FieldError]:
        return problems_of(schema, obj, old)

    return replace(
        GENERIC_CUSTOM,
        default=default,
        default_status=default,
        validate=lambda obj: problems(obj, None),
        validates_only_creation=True,
        validate_update=problems,
        validate_status_update=problems,
        layout=custom_layout(schema),
    )


class CustomResources:
    """Keeps the catalogue in sync with the stored definitions."""

    def __init__(self, registry: RestStorage) -> None:
        self._registry = registry
        registry.store.subscribe(DEFINITIONS, self._on_definition)

    def resume(self) -> None:
        """Serve the definitions of a previous process."""
        for entry in list(self._registry.store.collection(DEFINITIONS).entries()):
            self._serve(entry.obj)
            self._clean_up(entry.obj)

    def _on_definition(self, change: Change) -> None:
        definition = change.entry.obj
        if change.type == "DELETED":
            spec = definition["spec"]
            self._registry.catalog.remove_custom(spec["group"], spec["names"]["plural"])
            return
        if change.old is None or change.old.obj.get("spec") != definition.get("spec"):
            self._serve(definition)
        self._clean_up(definition)

    def _serve(self, definition: JsonObject) -> None:
        spec = definition["spec"]
        catalog = self._registry.catalog
        catalog.remove_custom(spec["group"], spec["names"]["plural"])
        served = {version["name"] for version in spec["versions"] if version.get("served")}
        resources = [item for item in resources_of(definition) if item.version in served]
        for resource in resources:
            self._registry.custom_strategies[resource] = custom_strategy(resource)
        catalog.add_custom(resources)

    def _clean_up(self, definition: JsonObject) -> None:
        """Delete the objects of a definition that is being deleted, then the definition."""
        metadata = definition["metadata"]
        if metadata.get("deletionTimestamp") is None or CLEANUP not in (
            metadata.get("finalizers") or ()
        ):
            return
        registry = self._registry
        resource = resources_of(definition)[0]
        collection = registry.store.collection(resource.storage_key)
        for entry in list(collection.entries()):
            own = entry.obj["metadata"]
            try:
                registry.delete(resource, own.get("namespace", ""), own["name"])
            except (NotFound, Conflict):
                continue  # already removed by the listener of an earlier deletion
        if collection.count:
            self._finish_later(definition["metadata"]["name"], resource)
        else:
            self._release(metadata["name"])

    def _finish_later(self, name: str, resource: ResourceInfo) -> None:
        store = self._registry.store

        def on_change(change: Change) -> None:
            if store.collection(resource.storage_key).count == 0:
                unsubscribe()
                self._release(name)

        unsubscribe = store.subscribe(resource.storage_key, on_change)

    def _release(self, name: str) -> None:
        registry = self._registry
        entry = registry.store.get(DEFINITIONS, "", name)
        if entry is None:
            return
        metadata = dict(entry.obj["metadata"])
        metadata["finalizers"] = [
            finalizer for finalizer in metadata.get("finalizers") or () if finalizer != CLEANUP
        ]
        obj = {**entry.obj, "metadata": metadata}
        at_once(registry.replace(registry.catalog.get(DEFINITIONS), entry, obj))


def resources_of(definition: JsonObject) -> list[ResourceInfo]:
    """One row per version, the storage version first."""
    spec = definition["spec"]
    names = spec["names"]
    versions = sorted(spec.get("versions") or (), key=lambda version: not version.get("storage"))
    return [
        ResourceInfo(
            group=spec["group"],
            version=version["name"],
            kind=names["kind"],
            plural=names["plural"],
            singular=names.get("singular") or names["kind"].lower(),
            short_names=tuple(names.get("shortNames") or ()),
            namespaced=spec.get("scope") == "Namespaced",
            subresources=tuple(
                item for item in ("scale", "status") if item in (version.get("subresources") or {})
            ),
            categories=tuple(names.get("categories") or ()),
            custom=True,
            schema=(version.get("schema") or {}).get("openAPIV3Schema"),
            has_defaults=b'"default":' in encode(version.get("schema")),
        )
        for version in versions
    ]
