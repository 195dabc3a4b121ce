"""Detects whether the server has the history an informer knows, or was restored from a backup.

A restored cluster goes back to an older revision and counts on from there, with other changes under
the same revisions. Once it has passed the revision that an informer has reached, revisions alone do
not distinguish the two histories. The newest change that the informer knows does, its witness: no
other history has the same object with the same content, times included, at this revision.

`reflector` asks the server and acts on the result. See docs/design/0011.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kubesched.api.core_v1 import Pod
from kubesched.api.meta import ApiObject
from kubesched.api.names import key_of
from kubesched.api.watch import WatchEvent
from kubesched.base.errors import KubeschedError

MAX_REVISION_DIGITS = 20
"""64 bits."""


class ClusterRestored(KubeschedError):
    """The server has a different history: the cluster was restored from a backup."""


T = TypeVar("T", bound=ApiObject)


@dataclass(frozen=True, slots=True)
class Witness(Generic[T]):
    """The newest known change of a collection."""

    revision: int
    obj: T
    is_deletion: bool
    are_equal: Callable[[T, T], bool]
    """Compares two states of an object as the informer keeps them."""

    @property
    def key(self) -> str:
        return key_of(self.obj.metadata)

    @property
    def revision_before(self) -> str:
        """A watch from this revision begins with this change."""
        return str(self.revision - 1)

    def is_repeated_by(self, event: WatchEvent[T]) -> bool:
        is_deletion = event.type == "DELETED"
        return is_deletion == self.is_deletion and self.are_equal(self.obj, event.object)

    def agrees_with(self, objects: Sequence[T], reached: int) -> bool:
        """Whether the server has this change; False if the object has changed since `reached`.

        Raises:
            ClusterRestored: the server has a different state than we know as of `reached`.
        """
        # Some servers ignore the field selector and return all objects.
        shown = next((obj for obj in objects if key_of(obj.metadata) == self.key), None)
        if shown is None:
            return self.is_deletion
        if not self.is_deletion and self.are_equal(self.obj, shown):
            return True
        revision = number_of(shown.metadata.resource_version)
        if revision is not None and revision <= reached:
            state = "deleted" if self.is_deletion else "changed"
            raise ClusterRestored(
                f"{self.key} was {state} at revision {self.revision}, and the server shows "
                f"revision {revision}"
            )
        return False


def witness_of(event: WatchEvent[T], are_equal: Callable[[T, T], bool]) -> Witness[T] | None:
    """None if the server's revisions are not numbers, or for the first (0 has another meaning)."""
    revision = number_of(event.object.metadata.resource_version)
    if revision is None or revision < 2:
        return None
    return Witness(revision, event.object, event.type == "DELETED", are_equal)


def is_foreign(listed: ApiObject, known: ApiObject | None, reached: int) -> bool:
    """Whether a listed object proves that the list is not of the history we know up to `reached`.

    An object unchanged since then must be known at exactly this revision, and no pod ever leaves
    its node.
    """
    revision = number_of(listed.metadata.resource_version)
    if revision is not None and revision <= reached:
        return known is None or (
            known.metadata.resource_version != listed.metadata.resource_version
            or known.metadata.uid != listed.metadata.uid
        )
    if isinstance(known, Pod) and isinstance(listed, Pod):
        node_name = known.spec.node_name
        is_same = known.metadata.uid == listed.metadata.uid
        return is_same and bool(node_name) and node_name != listed.spec.node_name
    return False


def number_of(resource_version: str) -> int | None:
    """A revision as a number, if it is one."""
    is_number = len(resource_version) <= MAX_REVISION_DIGITS and resource_version.isascii()
    return int(resource_version) if is_number and resource_version.isdigit() else None
