"""Changes that arrive while an attempt waits: a failing handler must not end the scheduler."""

from __future__ import annotations

import pytest

from kubesched.errors import KubeschedError, Unrecoverable
from kubesched.scheduler.event_gate import EventGate


def fail_with(error):
    def change():
        raise error

    return change


@pytest.mark.parametrize("error", [KubeschedError("bad object"), RuntimeError("bug")], ids=str)
async def test_a_failing_parked_change_does_not_keep_the_others_from_being_applied(error):
    gate, applied = EventGate(), []
    with gate.hold():
        gate.park(fail_with(error))
        gate.park(lambda: applied.append("second"))
    assert applied == ["second"]


async def test_an_unrecoverable_parked_change_is_raised():
    gate = EventGate()
    with pytest.raises(Unrecoverable), gate.hold():
        gate.park(fail_with(Unrecoverable("cache is corrupted")))
