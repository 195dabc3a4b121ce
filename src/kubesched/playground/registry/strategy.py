"""Hooks for the defaults, admission and validation of each kind.

A `Strategy` is a set of hooks that `registry` calls in a fixed order:

    create:  default -> admit -> validate
    update:  default -> prepare_update -> validate(new, old)
    status:  default_status -> prepare_status_update -> validate_status,
             validate_status_update(new, old)

Hooks may change their objects in place, before these are stored. `resources.strategies` maps
resources to strategies; other resources use `GENERIC`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from kubesched.playground.apimachinery.managed_fields.paths import Layout, custom_layout
from kubesched.playground.apimachinery.object_meta import NameRule, subdomain_problems
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.apimachinery.validation import Problems

if TYPE_CHECKING:
    from kubesched.playground.registry.rest_storage import RestStorage

Defaulter: TypeAlias = Callable[[JsonObject], None]
Admission: TypeAlias = "Callable[[RestStorage, JsonObject], None]"
UpdateAdmission: TypeAlias = "Callable[[RestStorage, JsonObject, JsonObject], None]"
Validator: TypeAlias = Callable[[JsonObject], Problems]
UpdateValidator: TypeAlias = Callable[[JsonObject, JsonObject], Problems]
Propagation: TypeAlias = Literal["Background", "Foreground", "Orphan"]


def _nothing(*_: object) -> None:
    """Default hook, which does nothing."""


def _no_problems(*_: object) -> Problems:
    """Default validation, which accepts everything."""
    return ()


WRITABLE_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")


@dataclass(frozen=True, slots=True)
class SubresourceWrite:
    """How a subresource changes its object."""

    merge: Callable[[JsonObject, JsonObject], JsonObject]
    """Maps (sent object, old object) to the new object."""
    validate: UpdateValidator


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """The hooks of one kind; all are optional."""

    tracks_generation: bool = False
    keeps_status_on_create: bool = False
    spec_subresource: str = ""
    """The only subresource that may change the spec; if empty, any write may."""
    has_immutable_spec: bool = False
    """Updates must not change the spec; rules for new objects are not checked again."""
    status_keeps_metadata: tuple[str, ...] = ()
    """Metadata fields that a write to `/status` cannot change."""
    allows_unconditional_update: bool = True
    """Whether an update may omit the resourceVersion, or set it to 0."""
    returns_deleted_object: bool = False
    default_propagation: Propagation = "Background"
    default: Defaulter = _nothing
    default_status: Defaulter = _nothing
    """Applied to status writes; must not change the rest of the object."""
    admit: Admission = _nothing
    admission_reads: tuple[str, ...] | None = None
    """Resources that `admit` depends on, besides the clock; None if it may depend on anything."""
    prepare_update: UpdateAdmission = _nothing
    validate: Validator = _no_problems
    validates_only_creation: bool = False
    """`validate_update` covers all update rules; unchanged values are not validated again."""
    validate_update: UpdateValidator = _no_problems
    prepare_status_update: UpdateAdmission = _nothing
    validate_status: Validator = _no_problems
    validate_status_update: UpdateValidator = _no_problems
    name_rule: NameRule = subdomain_problems
    subresources: Mapping[str, SubresourceWrite] = field(default_factory=dict)
    """Subresources other than status that write a part of the object."""
    layout: Layout = field(default_factory=partial(custom_layout, None))
    """How fields of custom resources merge; those of built-in kinds have types."""


GENERIC = Strategy()
GENERIC_CUSTOM = Strategy(
    tracks_generation=True,
    status_keeps_metadata=WRITABLE_METADATA,
    allows_unconditional_update=False,
)
