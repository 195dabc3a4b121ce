"""What is particular to a kind when it is written: its defaults, its admission, its rules.

A `Strategy` is a bundle of hooks that `registry` calls in a fixed order:

    create:  default -> admit -> validate                      update:  default -> prepare_update -> validate(new, old)
    status:  default_status -> prepare_status_update -> validate_status, validate_status_update(new, old)

Hooks get objects they may change in place (they are not in the store yet). `resources.strategies`
maps resources to strategies; a resource without one gets `GENERIC`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

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
    """The hook of a kind that needs none."""


def _no_problems(*_: object) -> Problems:
    """The validation of a kind without rules."""
    return ()


WRITABLE_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")


@dataclass(frozen=True, slots=True)
class SubresourceWrite:
    """How a subresource changes its object."""

    merge: Callable[[JsonObject, JsonObject], JsonObject]
    """(what was sent, the old object) -> the new object."""
    validate: UpdateValidator


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """The hooks of one kind; every one of them may be absent."""

    tracks_generation: bool = False
    keeps_status_on_create: bool = False
    spec_subresource: str = ""
    """The only subresource that may change the spec; empty: any write may."""
    has_immutable_spec: bool = False
    """An update may not change the spec; then only that is checked, not the rules for a new one."""
    status_keeps_metadata: tuple[str, ...] = ()
    """Fields of the metadata that a write to `/status` cannot change."""
    allows_unconditional_update: bool = True
    """Whether an update may leave out the resourceVersion, or state 0."""
    returns_deleted_object: bool = False
    default_propagation: Propagation = "Background"
    default: Defaulter = _nothing
    default_status: Defaulter = _nothing
    """Applied to what a write to `/status` brings; must leave the rest of the object alone."""
    admit: Admission = _nothing
    admission_reads: tuple[str, ...] | None = None
    """The resources `admit` looks at, if that and the clock are all it depends on; None: it may
    depend on anything.
    """
    prepare_update: UpdateAdmission = _nothing
    validate: Validator = _no_problems
    validates_only_creation: bool = False
    """`validate_update` covers all rules for updates: what it leaves as it was is not judged again.
    """
    validate_update: UpdateValidator = _no_problems
    prepare_status_update: UpdateAdmission = _nothing
    validate_status: Validator = _no_problems
    validate_status_update: UpdateValidator = _no_problems
    name_rule: NameRule = subdomain_problems
    subresources: Mapping[str, SubresourceWrite] = field(default_factory=dict)
    """Subresources other than status through which a part of the object is written."""


GENERIC = Strategy()
GENERIC_CUSTOM = Strategy(
    tracks_generation=True,
    status_keeps_metadata=WRITABLE_METADATA,
    allows_unconditional_update=False,
)
