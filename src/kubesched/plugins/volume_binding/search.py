"""Filter of VolumeBinding: finds volumes for a pod's claims, for all nodes of a view at once.

A bound claim admits the nodes that can reach its volume. For each other claim, smallest first, each
node offers the smallest free volume it can reach; remaining claims must be provisionable there. The
choices are arrays over the nodes, from which Reserve reads the entry of the chosen node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np

from kubesched.api import quantity
from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim
from kubesched.api.names import key_of
from kubesched.api.selectors import Selector, SelectorError, from_label_selector
from kubesched.api.storage_v1 import StorageClass
from kubesched.framework.nodes.columns import Ints, Mask
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import Status, error_status, unresolvable
from kubesched.framework.verdicts import Verdicts
from kubesched.plugins.helper.node_selector_columns import named
from kubesched.plugins.helper.volumes.claims import (
    NO_PROVISIONER,
    SELECTED_NODE,
    class_of_claim,
    is_bound_to,
    requested_storage,
)
from kubesched.plugins.helper.volumes.csi_migration import (
    TranslationError,
    plugin_of,
    translated_affinity,
)
from kubesched.plugins.helper.volumes.first_match import NONE, Ranks, first_matches
from kubesched.plugins.helper.volumes.node_masks import in_topology, reachable
from kubesched.plugins.volume_binding.pod_claims import PodClaims
from kubesched.plugins.volume_binding.storage import FILESYSTEM, Storage, VolumeFacts

NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE: Final = "node(s) did not have enough free storage"
VOLUME_MISSING: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"

_REASONS: Final = (NODE_CONFLICT, BIND_CONFLICT, NOT_ENOUGH_SPACE, VOLUME_MISSING)
_FIRST_ERROR: Final = 1 << len(_REASONS)


@dataclass(frozen=True, slots=True)
class Match:
    """For one claim, per node of the view, which of `volumes` it would get."""

    claim: PersistentVolumeClaim
    volumes: Sequence[VolumeFacts]
    choice: Ranks
    """Index into `volumes`, or NONE."""


@dataclass(frozen=True, slots=True)
class Provision:
    """A claim to be provisioned, with its nodes and capacities."""

    claim: PersistentVolumeClaim
    where: Mask
    capacities: Ints
    """In bytes."""
    choice: Ranks | None
    """Index into `capacities`; None if capacity is not checked."""


class Search:
    """The outcome for one pod and one view."""

    def __init__(self, storage: Storage, claims: PodClaims, nodes: NodeColumns) -> None:
        self._storage = storage
        self._nodes = nodes
        self._findings: list[Mask | None] = [None] * len(_REASONS)
        self._errors: list[tuple[Mask, str]] = []
        self.matches: list[Match] = []
        self.provisions: list[Provision] = []
        if claims.bound:
            self._check_bound(claims.bound)
        if claims.delayed:
            self._serve(claims.delayed)

    def __len__(self) -> int:
        """Number of nodes in its view."""
        return len(self._nodes)

    @property
    def has_errors(self) -> bool:
        return bool(self._errors)

    def verdicts(self) -> Verdicts | None:
        """None if every node passes."""
        if self._errors:
            return self._broken_verdicts()
        findings = [(at, mask) for at, mask in enumerate(self._findings) if mask is not None]
        if not findings:
            return None
        if len(findings) == 1:
            ((at, mask),) = findings
            return Verdicts.reject(mask, _STATUSES[1 << at])
        return Verdicts(self._codes(), _STATUSES.__getitem__)

    def _codes(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        codes = np.zeros(len(self._nodes), dtype=np.uint8)
        for at, mask in enumerate(self._findings):
            if mask is not None:
                codes |= np.left_shift(mask, at, dtype=np.uint8)
        return codes

    def _broken_verdicts(self) -> Verdicts:
        """An error on a node overrides all other findings there."""
        codes = self._codes().astype(np.uint16)
        broken = np.zeros(len(self._nodes), dtype=np.bool_)
        for number, (where, _) in enumerate(self._errors):
            codes[where & ~broken] = _FIRST_ERROR + number
            broken |= where
        errors = [text for _, text in self._errors]

        def describe(code: int) -> Status:
            if code >= _FIRST_ERROR:
                return error_status(errors[code - _FIRST_ERROR])
            return _STATUSES[code]

        return Verdicts(codes, describe, broken)

    def covers(self, row: int) -> bool:
        """Is this row in a view of the table's first rows, where a row is its own index?"""
        rows = self._nodes.rows
        return isinstance(rows, slice) and not rows.start and row < len(self._nodes)

    def passes(self, index: int) -> bool:
        return not any(mask is not None and mask[index] for mask in self._findings) and not any(
            where[index] for where, _ in self._errors
        )

    def _find(self, reason: str, where: Mask) -> None:
        if not where.any():
            return
        at = _REASONS.index(reason)
        known = self._findings[at]
        self._findings[at] = where if known is None else known | where

    def _everywhere(self) -> Mask:
        return np.ones(len(self._nodes), dtype=np.bool_)

    # -- bound claims ------------------------------------------------------------------------------

    def _check_bound(self, claims: Sequence[PersistentVolumeClaim]) -> None:
        """Check where bound claims' volumes are reachable. A node's first problem decides."""
        reached: Mask | None = None
        for claim in claims:
            volume = self._storage.volumes.get(claim.spec.volume_name)
            if volume is None:
                self._find(VOLUME_MISSING, self._everywhere() if reached is None else reached)
                return
            mask = self._reaches(volume, reached)
            if mask is None:
                continue
            self._find(NODE_CONFLICT, ~mask)
            reached = mask if reached is None else reached & mask

    def _reaches(self, volume: PersistentVolume, candidates: Mask | None) -> Mask | None:
        """Nodes that reach a volume, using migrated affinity where it applies; None means all."""
        storage, nodes = self._storage, self._nodes
        mask = reachable(nodes, volume.spec.node_affinity)
        plugin = plugin_of(volume.spec)
        if plugin is None or not plugin.is_migrated:
            return mask
        migrated = storage.csi_nodes.handed_over(nodes, plugin)
        if not migrated.any():
            return mask
        try:
            affinity = translated_affinity(plugin, volume)
        except TranslationError as error:
            where = migrated if candidates is None else migrated & candidates
            self._errors.append((where, f"could not translate pv: {error}"))
            return mask
        translated = reachable(nodes, affinity)
        if mask is None and translated is None:
            return None
        everywhere = self._everywhere()
        return np.where(
            migrated,
            everywhere if translated is None else translated,
            everywhere if mask is None else mask,
        )

    # -- claims to be bound ------------------------------------------------------------------------

    def _serve(self, claims: Sequence[PersistentVolumeClaim]) -> None:
        """Match or provision every WaitForFirstConsumer claim."""
        to_match: list[PersistentVolumeClaim] = []
        to_provision: list[PersistentVolumeClaim] = []
        here: Mask | None = None
        for claim in claims:
            selected = (claim.metadata.annotations or {}).get(SELECTED_NODE)
            if selected is None:
                to_match.append(claim)
                continue
            # Provisioning is already in progress for this node: the pod cannot use any other.
            to_provision.append(claim)
            only = named(self._nodes, selected)
            here = only if here is None else here & only
        if here is None:
            here = self._everywhere()
        else:
            self._find(BIND_CONFLICT, ~here)
            if not here.any():
                return
        to_match.sort(key=lambda claim: requested_storage(claim).nanos)
        volumes = _Numbered()
        for claim in to_match:
            choice = self._match(claim, volumes, here)
            if choice is None:
                return
            self.matches.append(Match(claim, volumes.listed, choice))
        self._provision(to_provision, here)

    def _match(self, claim: PersistentVolumeClaim, volumes: _Numbered, here: Mask) -> Ranks | None:
        """The number of the volume each node would give the claim; None on error."""
        try:
            reserved, free = candidates(claim, self._storage)
        except SelectorError as error:
            text = (
                "error creating internal label selector for claim: "
                f"{key_of(claim.metadata)}: {error}"
            )
            self._errors.append((here, text))
            return None
        choice: Ranks = np.full(len(self._nodes), NONE, dtype=np.int32)
        undecided = self._everywhere()
        for facts in reserved:
            # A volume reserved for the claim is the result or, if unreachable, rules out any other.
            number = volumes.number(facts)
            mine = undecided & ~self._is_taken(number)
            mask = reachable(self._nodes, facts.volume.spec.node_affinity)
            choice[mine if mask is None else mine & mask] = number
            undecided &= ~mine
        if free and undecided.any():
            self._match_free(free, volumes, choice, undecided)
        return choice

    def _match_free(
        self, free: Sequence[VolumeFacts], volumes: _Numbered, choice: Ranks, undecided: Mask
    ) -> None:
        """Give every undecided node its first reachable volume that no earlier claim took there."""
        numbers = volumes.numbers(free)
        ranked = ((rank, facts.reach) for rank, facts in enumerate(free))
        # Earlier claims took at most one volume each, so one of these candidates is still free.
        layers = first_matches(self._nodes, ranked, len(self.matches) + 1)
        number_of_rank = np.array([*numbers, NONE], dtype=np.int32)
        for layer in layers:
            candidate = number_of_rank[np.minimum(layer, len(numbers))]
            usable = undecided & (candidate != NONE)
            for match in self.matches:
                usable &= candidate != match.choice
            choice[usable] = candidate[usable]
            undecided = undecided & ~usable

    def _is_taken(self, number: int) -> Mask:
        taken = np.zeros(len(self._nodes), dtype=np.bool_)
        for match in self.matches:
            taken |= match.choice == number
        return taken

    # -- provisioning ------------------------------------------------------------------------------

    def _provision(self, selected: Sequence[PersistentVolumeClaim], here: Mask) -> None:
        """Check that unmatched claims can be provisioned; a node's first problem decides."""
        wanted = [
            *((claim, here) for claim in selected),
            *((match.claim, here & (match.choice == NONE)) for match in self.matches),
        ]
        done = np.zeros(len(self._nodes), dtype=np.bool_)
        for claim, where in wanted:
            where = where & ~done
            if not where.any():
                continue
            class_name = class_of_claim(claim)
            storage_class = self._storage.classes.get("", class_name) if class_name else None
            if storage_class is None:
                text = (
                    f'failed to find storage class "{class_name}"'
                    if class_name
                    else f'no class for claim "{key_of(claim.metadata)}"'
                )
                self._errors.append((where, text))
                done |= where
                continue
            done |= self._provision_one(claim, storage_class, where)

    def _provision_one(
        self, claim: PersistentVolumeClaim, storage_class: StorageClass, where: Mask
    ) -> Mask:
        """Record why a class cannot provision the claim; returns the nodes where it cannot."""
        if storage_class.provisioner in ("", NO_PROVISIONER):
            self._find(BIND_CONFLICT, where)
            return where
        failed = np.zeros(len(self._nodes), dtype=np.bool_)
        allowed = in_topology(self._nodes, storage_class.allowed_topologies)
        if allowed is not None:
            failed = where & ~allowed
            self._find(BIND_CONFLICT, failed)
        capacities: Ints = np.zeros(0, dtype=np.int64)
        choice: Ranks | None = None
        if self._capacity_matters(claim, storage_class):
            capacities, choice = self._enough_capacity(claim, storage_class.metadata.name)
            lacking = where & ~failed & (choice == NONE)
            self._find(NOT_ENOUGH_SPACE, lacking)
            failed = failed | lacking
        self.provisions.append(Provision(claim, where & ~failed, capacities, choice))
        return failed

    def _capacity_matters(self, claim: PersistentVolumeClaim, storage_class: StorageClass) -> bool:
        if "storage" not in (claim.spec.resources.requests or {}):
            return False
        driver = self._storage.drivers.get("", storage_class.provisioner)
        return driver is not None and bool(driver.spec.storage_capacity)

    def _enough_capacity(self, claim: PersistentVolumeClaim, class_name: str) -> tuple[Ints, Ranks]:
        """For each node, the first reachable capacity object with room for the claim.

        # Upstream: each claim is looked at alone, so two that fit one by one may not fit together.
        """
        wanted = quantity.value((claim.spec.resources.requests or {})["storage"])
        return self._storage.roomy_capacities(class_name, wanted, self._nodes)


class ClaimShape(NamedTuple):
    """The parts of a claim that matching reads, except volumes reserved for it by name."""

    class_name: str
    wanted_nanos: int
    mode: str
    attributes_class: str
    access_modes: frozenset[str]
    selector: Selector | None

    def fits(self, facts: VolumeFacts) -> bool:
        """Is the volume large enough and of the right kind?"""
        return (
            facts.capacity_nanos >= self.wanted_nanos
            and facts.mode == self.mode
            and facts.attributes_class == self.attributes_class
            and not facts.is_deleting
        )

    def suits(self, facts: VolumeFacts) -> bool:
        """Can such a claim be bound to the volume if it is unreserved?"""
        return (
            self.fits(facts)
            and facts.is_available
            and self.access_modes <= facts.access_modes
            and (self.selector is None or self.selector.matches(facts.volume.metadata.labels))
        )


def shape_of(claim: PersistentVolumeClaim) -> ClaimShape:
    """Raises SelectorError for a malformed selector."""
    spec = claim.spec
    return ClaimShape(
        class_of_claim(claim),
        requested_storage(claim).nanos,
        FILESYSTEM if spec.volume_mode is None else spec.volume_mode,
        spec.volume_attributes_class_name or "",
        frozenset(spec.access_modes or ()),
        None if spec.selector is None else from_label_selector(spec.selector),
    )


def candidates(
    claim: PersistentVolumeClaim, storage: Storage
) -> tuple[list[VolumeFacts], list[VolumeFacts]]:
    """Volumes reserved for the claim, and suitable free ones, smallest first, for any node.

    Raises SelectorError for a malformed selector.
    """
    shape = shape_of(claim)
    reserved: list[VolumeFacts] = []
    free: list[VolumeFacts] = []
    for facts in storage.volumes_for(shape.class_name, key_of(claim.metadata)):
        if facts.volume.spec.claim_ref is None:
            if shape.suits(facts):
                free.append(facts)
        elif shape.fits(facts) and is_bound_to(facts.volume, claim):
            reserved.append(facts)
    reserved.sort(key=_order)
    free.sort(key=_order)
    return reserved, free


_order = attrgetter("order")


class _Numbered:
    """Volumes numbered in order of first use."""

    __slots__ = ("_numbers", "listed")

    def __init__(self) -> None:
        self.listed: list[VolumeFacts] = []
        self._numbers: dict[str, int] | None = None

    def number(self, facts: VolumeFacts) -> int:
        if self._numbers is None:
            self._numbers = {known.order[1]: at for at, known in enumerate(self.listed)}
        number = self._numbers.setdefault(facts.order[1], len(self.listed))
        if number == len(self.listed):
            self.listed.append(facts)
        return number

    def numbers(self, volumes: Sequence[VolumeFacts]) -> Sequence[int]:
        if self.listed:
            return [self.number(facts) for facts in volumes]
        self.listed.extend(volumes)  # all distinct and nothing numbered yet: no lookup needed
        return range(len(volumes))


_STATUSES: Final = [
    unresolvable(*(reason for at, reason in enumerate(_REASONS) if bits >> at & 1))
    for bits in range(1 << len(_REASONS))
]
