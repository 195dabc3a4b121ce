"""Common parts of all API objects: the record base, metadata, label selectors, conditions.

Records are frozen, excluded from cyclic garbage collection (`gc=False`; they have no reference
cycles) and mirror the JSON of one API type. Fields that the scheduler, the controllers and the
kubelets never read are left out, so decoding also trims; where nothing may be lost,
`codec.Preserved` keeps the original with the record. Absent and empty are distinct: lists, maps and
objects are None when absent, while strings, booleans and plain numbers take Go's zero value.
Timestamps stay RFC 3339 text.

Fields are declared in the order in which the API server writes them, so that the decoder finds each
next field at its first guess.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, dataclass_transform

import msgspec
from msgspec import field

RawQuantity = str | int | float
"""A resource quantity as sent; `quantity.parse` interprets it."""

ResourceList = dict[str, RawQuantity]
"""Resource name to quantity, as sent."""

IntOrString = int | str

_UPPER_CASE_WORDS = {
    "cidr": "CIDR",
    "cidrs": "CIDRs",
    "id": "ID",
    "ip": "IP",
    "ipc": "IPC",
    "ips": "IPs",
    "pid": "PID",
    "uri": "URI",
    "url": "URL",
    "uuid": "UUID",
    "wwns": "WWNs",
}


def json_name(attribute: str) -> str:
    """The JSON spelling of a field: `host_ip` -> `hostIP`, `node_name` -> `nodeName`."""
    first, *rest = attribute.rstrip("_").split("_")
    return first + "".join(_UPPER_CASE_WORDS.get(word, word.capitalize()) for word in rest)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Record(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=json_name, gc=False
):
    """Base of every wire object."""


def constant(value: str) -> str:
    """A default that is always encoded.

    `omit_defaults` drops plain defaults on encoding, but an object without `kind` and `apiVersion`
    is not valid; a default made by a factory is always encoded.
    """
    made: str = field(default_factory=lambda: value)
    return made


class OwnerReference(Record):
    """An owner of this object; at most one owner is the managing controller."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Record):
    """Identity, labels and life cycle of an object (managedFields are not kept)."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    finalizers: list[str] | None = None

    def is_newer_than(self, other: ObjectMeta) -> bool:
        """Whether this is a later revision of the object; False if revisions are not numbers."""
        mine, theirs = self.resource_version, other.resource_version
        return mine.isdigit() and theirs.isdigit() and int(mine) > int(theirs)

    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if any."""
        for owner in self.owner_references or ():
            if owner.controller:
                return owner
        return None


class ApiObject(Protocol):
    """Anything with metadata: every top-level record."""

    @property
    def metadata(self) -> ObjectMeta: ...


class PartialObjectMetadata(Record):
    """An object of any kind, reduced to its metadata."""

    kind: str = ""
    api_version: str = ""
    metadata: ObjectMeta = ObjectMeta()


class CustomObject(Record):
    """An object of a custom resource: metadata as a record, spec and status as plain JSON.

    A subclass named after the kind, with its `plural.version.group` as `resource`, is the record of
    that resource wherever its objects are read: by informers, from dumps, in a cluster in memory.
    It may have further top-level fields, and types for spec and status. An object that does not fit
    is logged and left out.
    """

    resource: ClassVar[str] = ""
    records: ClassVar[dict[str, type[CustomObject]]] = {}
    """Subclasses by `resource`."""

    kind: str = ""
    api_version: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Any = None
    status: Any = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.resource:
            CustomObject.records[cls.resource] = cls


class ListMeta(Record):
    """Metadata of a list: its revision and, when paged, the continue token."""

    resource_version: str = ""
    continue_: str = ""
    remaining_item_count: int | None = None


class LabelSelectorRequirement(Record):
    """One condition on a label: In, NotIn, Exists or DoesNotExist."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(Record):
    """Conditions on labels that must all hold; see `selectors.from_label_selector`."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelSelectorRequirement] | None = None


class Condition(Record):
    """metav1.Condition: one aspect of an object's state, its reason and since when."""

    type: str = ""
    status: str = ""
    observed_generation: int = 0
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class Preconditions(Record):
    """Conditions that the object must meet to be deleted."""

    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(Record):
    """Deletion options: grace period, propagation and preconditions."""

    kind: str = constant("DeleteOptions")
    api_version: str = constant("v1")
    grace_period_seconds: int | None = None
    preconditions: Preconditions | None = None
    propagation_policy: str | None = None
    dry_run: list[str] | None = None
