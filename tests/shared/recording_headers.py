"""The header of a recording that tests write."""

from __future__ import annotations

from kubesched.insight.recording.segments import Header

HEADER = Header(
    number=0,
    run=0,
    made_by="test",
    wall_time=1_000_000.0,
    time=0.0,
    attempts=0,
    seed=1,
    config={},
    feature_gates={},
)
