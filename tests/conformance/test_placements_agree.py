"""Recorded and generated placements: the production code decides as recorded, and as the scalar twins do.

The recordings under `data` are the project's own: generated clusters with answers made by the twins.
"""

import json
from pathlib import Path
from random import Random

import msgspec
import pytest
from record_placements import answered

from kubesched.conformance import generate
from kubesched.conformance.comparison import Aspect, compare
from kubesched.conformance.golden import evaluate
from kubesched.conformance.placements import Cluster
from kubesched.conformance.recordings import Answer, Placement, read_placements

RECORDED = Path(__file__).parent / "data" / "placements.jsonl.gz"


def test_every_recorded_placement_is_decided_as_recorded():
    report = evaluate([RECORDED])
    assert report.disagreements == []
    assert report.pods == report.pods_in_agreement > 300


def test_the_recordings_exercise_every_aspect():
    report = evaluate([RECORDED])
    assert all(tally.compared > 300 for tally in report.agreement.by_aspect.values())
    assert set(report.agreement.by_aspect) == set(Aspect)


def test_the_recordings_are_what_the_twins_say():
    for recorded in read_placements(RECORDED):
        fresh = answered(msgspec.to_builtins(recorded.placement))
        for pending, again in zip(recorded.placement.pending, fresh["pending"], strict=True):
            assert msgspec.convert(again["expect"], Answer) == pending.expect


@pytest.mark.parametrize("malformed", [False, True], ids=["as an API server admits", "malformed"])
@pytest.mark.parametrize("seed", range(12))
def test_generated_placements_are_decided_as_the_twins_decide(seed, malformed):
    taste = generate.Taste(malformed=malformed)
    made = answered(generate.placement(Random(f"twins {seed}"), taste))
    placement = msgspec.json.decode(json.dumps(made), type=Placement)
    cluster = Cluster(placement)
    for pending in placement.pending:
        found = [f for f in compare(pending.expect, cluster.place(pending.pod)) if not f.agrees]
        assert found == []
