"""Simulated runs as cells of a sweep: one seed each, in this process or another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import msgspec

from kubesched.app.simulated import SimulatedProcess
from kubesched.lab.simulation.options import Options, of_seed
from kubesched.lab.simulation.run import SimulationResult, simulate
from kubesched.lab.simulation.violation import Violation
from kubesched.lab.sweeps.store import key_of_cell
from kubesched.lab.sweeps.sweep import Keyed


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """Settings shared by all seeds of a sweep."""

    faults: bool
    extras: tuple[str, ...] = ()


def simulate_cell(settings: SimulationSettings, seed: int) -> bytes:
    """One run as JSON."""
    options = of_seed(seed, faults=settings.faults, extras=settings.extras)
    return encode(simulate(seed, SimulatedProcess, options=options))


def keyed(settings: SimulationSettings, seeds: Sequence[int]) -> list[Keyed]:
    """The seeds, keyed by the hash of (settings, seed, version)."""
    return [Keyed(key_of_cell(simulation=asdict(settings), seed=seed), seed) for seed in seeds]


def encode(outcome: SimulationResult) -> bytes:
    violation = outcome.violation
    fields = {name: getattr(outcome, name) for name in SimulationResult.__slots__}
    fields["options"] = asdict(outcome.options)
    fields["violation"] = [violation.property, violation.detail] if violation is not None else None
    return msgspec.json.encode(fields)


def decode(data: bytes) -> SimulationResult:
    fields = msgspec.json.decode(data)
    fields["options"] = msgspec.convert(fields["options"], Options)
    if fields["violation"] is not None:
        fields["violation"] = Violation(*fields["violation"])
    fields["last_lines"] = tuple(fields["last_lines"])
    return SimulationResult(**fields)
