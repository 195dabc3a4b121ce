"""Two of ours and one kube-scheduler share a Lease: the API server's own record shows that only the
holder schedules.

Each scheduler has a user of its own, so that the audit log tells who wrote the Lease and who bound
which pod.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from dataclasses import dataclass

import pytest
import yaml

pytestmark = pytest.mark.real

AUDITED = pytest.mark.parametrize(
    "cluster", [pytest.param("audited", marks=pytest.mark.real)], indirect=True
)
QUICK = {"leaseDuration": "10s", "renewDeadline": "8s", "retryPeriod": "1s"}
"""Quick, but not so quick that a busy machine makes leaders give up."""
RBAC = "/apis/rbac.authorization.k8s.io/v1"


async def make_user(cluster, name, folder):
    """A service account with kube-scheduler's rights; returns its kubeconfig."""
    accounts = "/api/v1/namespaces/kube-system/serviceaccounts"
    meta = {"name": name, "namespace": "kube-system"}
    await cluster.create(accounts, apiVersion="v1", kind="ServiceAccount", metadata=meta)
    subject = {"kind": "ServiceAccount", **meta}
    for role in ("system:kube-scheduler", "system:volume-scheduler"):
        await cluster.create(
            f"{RBAC}/clusterrolebindings",
            apiVersion="rbac.authorization.k8s.io/v1",
            kind="ClusterRoleBinding",
            metadata={"name": f"{name}-{role.rpartition(':')[2]}"},
            subjects=[subject],
            roleRef={
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": role,
            },
        )
    token = await cluster.create(
        f"{accounts}/{name}/token",
        apiVersion="authentication.k8s.io/v1",
        kind="TokenRequest",
        spec={},
    )
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token["status"]["token"]}
    path = folder / f"{name}.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


@dataclass(frozen=True)
class Hold:
    """A write to the Lease: who wrote, when it was through, and who is the holder now."""

    at: str
    user: str
    holder: str


class Record:
    """What the API server wrote down. Its times are of one clock and sort as text."""

    def __init__(self, path):
        self._path = path

    def entries(self, resource):
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        for line in lines:
            if not line.endswith("}"):
                continue  # the last one, half written
            entry = json.loads(line)
            accepted = entry["responseStatus"]["code"] in (200, 201)
            if entry["objectRef"]["resource"] == resource and accepted:
                yield entry, entry["user"]["username"].rpartition(":")[2]

    def holds(self):
        """Every accepted write to the Lease, in order."""
        return sorted(
            (
                Hold(
                    entry["stageTimestamp"],
                    user,
                    entry["requestObject"]["spec"].get("holderIdentity") or "",
                )
                for entry, user in self.entries("leases")
                if entry["objectRef"].get("name") == "kube-scheduler"
            ),
            key=lambda hold: hold.at,
        )

    def turns(self):
        """Who held the Lease, one entry for each change of holder; `at` is when."""
        turns = []
        for hold in self.holds():
            if hold.holder and (not turns or turns[-1].holder != hold.holder):
                turns.append(hold)
        return turns

    def bindings(self):
        """(received, user, pod) of every accepted binding."""
        return sorted(
            (entry["requestReceivedTimestamp"], user, entry["objectRef"]["name"])
            for entry, user in self.entries("pods")
        )


def strangers(record):
    """Bindings by a scheduler that was not the holder when the request came in."""
    holds = record.holds()
    results = []
    for received, user, pod in record.bindings():
        before = [hold for hold in holds if hold.at <= received]
        if not before or before[-1].user != user or not before[-1].holder:
            results.append((received, user, pod, before[-1:]))
    return results


@AUDITED
async def test_two_of_ours_and_one_of_theirs_never_schedule_at_the_same_time(
    cluster, contestant, tmp_path
):
    """Pods arrive all the time while leaders are killed, frozen and stopped in turn."""
    for number in range(20):
        await cluster.add_node(f"n{number}", cpu="64")
    record = Record(tmp_path / "audit.log")
    schedulers = {}
    for name, kind in (("go", "theirs"), ("one", "ours"), ("two", "ours")):
        schedulers[name] = await contestant(
            name,
            kind=kind,
            serves=False,
            config={"leaderElection": {"leaderElect": True, **QUICK}},
            kubeconfig=await make_user(cluster, name, tmp_path),
        )
    created = []

    async def keep_creating():
        for number in itertools.count():
            await cluster.add_pod(f"p{number}", cpu="10m")
            created.append(f"p{number}")
            await asyncio.sleep(0.2)

    async def leader(hand_overs=0):
        """Who leads, after so many hand-overs."""

        async def find():
            turns = record.turns()
            return schedulers[turns[-1].user] if len(turns) > hand_overs else None

        return await cluster.eventually(find)

    async def progress():
        so_far = len(created)

        async def more():
            return len(created) >= so_far + 3

        await cluster.eventually(more)
        await cluster.bound(*created[so_far : so_far + 3])

    arriving = asyncio.ensure_future(keep_creating())
    try:
        await leader()
        await progress()
        hand_overs = 0
        ways = [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL]
        while ways:
            current = await leader(hand_overs)
            how = ways[0]
            if how is signal.SIGSTOP and current is schedulers["go"]:
                # kube-scheduler goes on beside the new leader until its renew deadline has passed;
                # ours must not.
                how = signal.SIGKILL
            else:
                ways.pop(0)
            if how is signal.SIGSTOP:
                current.process.send_signal(how)
            else:
                await current.kill(how)
            hand_overs += 1
            assert await leader(hand_overs) is not current
            await progress()
            if how is signal.SIGSTOP:
                current.process.send_signal(signal.SIGCONT)
                async with asyncio.timeout(300):
                    assert await current.process.wait() == 1
            await current.start()
    finally:
        arriving.cancel()
        await asyncio.gather(arriving, return_exceptions=True)
    await cluster.bound(*created)

    assert sorted(pod for _at, _user, pod in record.bindings()) == sorted(created)
    assert strangers(record) == []
    turns = record.turns()
    assert len(turns) == hand_overs + 1
    assert {user for _at, user, _pod in record.bindings()} == {turn.user for turn in turns}
    assert (await cluster.lease())["spec"]["leaseTransitions"] == hand_overs
