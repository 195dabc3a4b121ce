"""The next size of each ReplicaSet of a Deployment.

Pure functions from sizes to sizes. Each returns the ReplicaSets to change with their new sizes; an
empty result means there is nothing to do until something else changes.

Invariants of a rolling update, for any order of events:
- the sizes never sum to more than the desired replicas plus the surge (except for what remains from
  before a Deployment was scaled down);
- no scale-down leaves fewer than desired minus `max_unavailable` pods available.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kubesched.playground.apimachinery.objects import JsonObject, scaled_value, spec_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The sizes of one ReplicaSet."""

    name: str
    replicas: int
    """`spec.replicas`."""
    available: int = 0
    """`status.availableReplicas`."""
    age_rank: int = 0
    """Rank by creation time among its siblings, oldest first."""
    max_replicas_before: int | None = None
    """The Deployment's desired replicas plus surge when this ReplicaSet was last sized."""
    wanted_before: int | None = None
    """The Deployment's desired replicas when this ReplicaSet was last sized."""

    @property
    def surely_available(self) -> int:
        """Available pods after a pending scale-down; the status may lag behind the spec."""
        return min(self.available, self.replicas)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The desired replicas and how far a rolling update may deviate from them."""

    wanted: int
    surge: int
    unavailable: int

    @property
    def most(self) -> int:
        return self.wanted + self.surge

    @property
    def min_available(self) -> int:
        return self.wanted - self.unavailable


def is_rolling(deployment: JsonObject) -> bool:
    strategy = spec_of(deployment).get("strategy") or {}
    return bool(strategy.get("type", "RollingUpdate") == "RollingUpdate")


def bounds_of(deployment: JsonObject) -> Bounds:
    """The bounds set by a Deployment's strategy; Recreate allows no deviation."""
    spec = spec_of(deployment)
    wanted = int(spec.get("replicas", 1))
    if not is_rolling(deployment):
        return Bounds(wanted, 0, 0)
    rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
    surge = scaled_value(rolling.get("maxSurge", "25%"), wanted, round_up=True)
    unavailable = scaled_value(rolling.get("maxUnavailable", "25%"), wanted, round_up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1  # Upstream: rounding must not make a rollout impossible.
    return Bounds(wanted, surge, min(unavailable, wanted))


def rolling_step(bounds: Bounds, new: Size, old: Sequence[Size]) -> dict[str, int]:
    """Next step of a rolling update: scale up the new ReplicaSet, else scale down the old ones."""
    return _grow_new(bounds, new, old) or _shrink_old(bounds, new, old)


def new_size(bounds: Bounds, new_replicas: int, total: int) -> int:
    """Allowed size of the new ReplicaSet while all ReplicaSets together have `total` replicas."""
    if new_replicas >= bounds.wanted:
        return bounds.wanted
    room = max(0, bounds.most - total)
    return new_replicas + min(room, bounds.wanted - new_replicas)


def _grow_new(bounds: Bounds, new: Size, old: Sequence[Size]) -> dict[str, int]:
    total = new.replicas + sum(replica_set.replicas for replica_set in old)
    size = new_size(bounds, new.replicas, total)
    return {new.name: size} if size != new.replicas else {}


def _shrink_old(bounds: Bounds, new: Size, old: Sequence[Size]) -> dict[str, int]:
    sizes = {replica_set.name: replica_set.replicas for replica_set in old}
    total = new.replicas + sum(sizes.values())
    new_unavailable = new.replicas - new.surely_available
    budget = total - bounds.min_available - new_unavailable
    if budget <= 0:
        return {}
    by_age = sorted(old, key=lambda replica_set: replica_set.age_rank)
    # Unavailable pods first: they do not count against availability.
    for replica_set in by_age:
        unhealthy = replica_set.replicas - replica_set.surely_available
        gone = min(budget, unhealthy)
        sizes[replica_set.name] -= gone
        budget -= gone
    available = sum(item.surely_available for item in (*old, new))
    spare = available - bounds.min_available
    for replica_set in by_age:
        gone = max(0, min(spare, sizes[replica_set.name]))
        sizes[replica_set.name] -= gone
        spare -= gone
    return {
        replica_set.name: sizes[replica_set.name]
        for replica_set in old
        if sizes[replica_set.name] != replica_set.replicas
    }


def scaled_steps(
    bounds: Bounds, new: Size | None, old: Sequence[Size], *, rolling: bool
) -> dict[str, int]:
    """Sizes after the Deployment was scaled, also of ReplicaSets that only need a new record."""
    everyone = [*old, *([new] if new is not None else [])]
    active = [replica_set for replica_set in everyone if replica_set.replicas > 0]
    if len(active) <= 1:
        return _scale_only_one(bounds, active, new, old)
    if new is not None and _is_saturated(bounds, new):
        return {replica_set.name: 0 for replica_set in old if replica_set.replicas > 0}
    return _scale_proportionally(bounds, active) if rolling else {}


def _is_saturated(bounds: Bounds, new: Size) -> bool:
    """Whether the new ReplicaSet has all desired replicas and was sized for exactly that."""
    return new.replicas == new.available == new.wanted_before == bounds.wanted


def _scale_only_one(
    bounds: Bounds, active: list[Size], new: Size | None, old: Sequence[Size]
) -> dict[str, int]:
    if active:
        target = active[0]
    elif new is not None:
        target = new
    elif old:
        target = max(old, key=lambda replica_set: replica_set.age_rank)
    else:
        return {}
    return {target.name: bounds.wanted}


def _scale_proportionally(bounds: Bounds, active: list[Size]) -> dict[str, int]:
    """Spread the difference over all ReplicaSets in proportion to their size.

    Larger ones come first, then newer (up) or older (down). The first gets the rounding remainder.
    """
    allowed = bounds.most if bounds.wanted > 0 else 0
    to_add = allowed - sum(replica_set.replicas for replica_set in active)
    newest_first = to_add > 0
    ordered = sorted(
        active,
        key=lambda replica_set: (
            -replica_set.replicas,
            -replica_set.age_rank if newest_first else replica_set.age_rank,
        ),
    )
    sizes = {replica_set.name: replica_set.replicas for replica_set in ordered}
    if to_add == 0:
        return sizes
    added = 0
    for replica_set in ordered:
        share = _share(bounds, replica_set)
        left = to_add - added
        share = min(share, left) if to_add > 0 else max(share, left)
        sizes[replica_set.name] += share
        added += share
    first = ordered[0].name
    sizes[first] = max(0, sizes[first] + to_add - added)
    return sizes


def _share(bounds: Bounds, replica_set: Size) -> int:
    if bounds.wanted == 0:
        return -replica_set.replicas
    before = replica_set.max_replicas_before
    if not before:
        return 0
    return _round_half_away(replica_set.replicas * bounds.most / before) - replica_set.replicas


def _round_half_away(value: float) -> int:
    return int(value + 0.5) if value >= 0 else int(value - 0.5)
