"""The clock of one machine is set forwards and back while its scheduler leads: libfaketime sets
it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ELECTION = {
    "leaderElection": {
        "leaderElect": True,
        "leaseDuration": "6s",
        "renewDeadline": "4s",
        "retryPeriod": "500ms",
    }
}
STEPS_S = (3600, -1800, 86_400, 0)


def library() -> Path | None:
    """Debian's package of that name puts it into a folder that linkers do not search."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    return found[0] if found else None


@pytest.mark.parametrize(
    "cluster",
    [pytest.param("real", marks=pytest.mark.real), "embedded"],
    indirect=True,
)
async def test_a_leader_whose_clock_is_set_goes_on_leading(cluster, run, tmp_path):
    faketime = library()
    if faketime is None:
        pytest.skip("needs libfaketime (Debian: apt-get install libfaketime)")
    await cluster.add_node("n1", cpu="32")
    offset = tmp_path / "offset"
    offset.write_text("+0\n")
    leader = await run(
        config=ELECTION,
        environment={
            "LD_PRELOAD": str(faketime),
            "FAKETIME_TIMESTAMP_FILE": str(offset),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        },
    )
    await leader.says('"Successfully acquired lease"')
    standby = await run(config=ELECTION)
    await standby.says('"Handlers synced"')
    for number, step in enumerate(STEPS_S):
        offset.write_text(f"{step:+d}\n")
        for name in (f"p{number}-at-once", f"p{number}-later"):
            before = (await cluster.lease())["spec"]["renewTime"]

            async def is_renewed(before=before):
                return (await cluster.lease())["spec"]["renewTime"] != before

            await cluster.eventually(is_renewed)
            await cluster.add_pod(name)
            await cluster.bound(name)
    assert leader.process.returncode is None, leader.log
    assert '"Successfully acquired lease"' not in standby.log
    assert (await cluster.lease())["spec"]["leaseTransitions"] == 0
