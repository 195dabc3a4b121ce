"""The scheduler's writes: unclear bindings are settled by looking, a former leader writes nothing, dry runs only talk."""

import pytest
from msgspec import structs

from kubesched.app.dry_run import DryRunCalls, DryRunRecorder
from kubesched.app.scheduling_calls import CarefulCalls, MeasuredCalls
from kubesched.clock import ManualClock
from kubesched.errors import (
    Conflict,
    ConnectFailed,
    DeadlineExceeded,
    NotFound,
    ServerError,
    StreamEnded,
)
from kubesched.metrics import MetricGates, Registry, SchedulerMetrics
from kubesched.testing import make_pod

POD = make_pod("a").build()


class FakeRest:
    """Binds or fails as told, and shows a pod on request."""

    def __init__(self, *, error=None, found=None):
        self.error, self.found = error, found
        self.calls = []

    async def bind(self, namespace, name, uid, node_name):
        self.calls.append("bind")
        if self.error is not None:
            raise self.error

    async def get(self, kind, name, namespace):
        self.calls.append("get")
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    async def patch(self, *arguments, **options):
        self.calls.append("patch")

    async def delete(self, *arguments):
        self.calls.append("delete")

    async def update_merged(self, obj):
        self.calls.append("update")
        return obj


def on(node):
    return structs.replace(POD, spec=structs.replace(POD.spec, node_name=node))


async def test_a_clear_answer_needs_no_second_look():
    rest = FakeRest()
    await CarefulCalls(rest).bind_pod(POD, "n1")
    assert rest.calls == ["bind"]


@pytest.mark.parametrize(
    "error", [DeadlineExceeded("late"), StreamEnded("cut"), ServerError("broken")]
)
async def test_a_binding_that_took_effect_counts_although_nobody_said_so(error):
    rest = FakeRest(error=error, found=on("n1"))
    await CarefulCalls(rest).bind_pod(POD, "n1")
    assert rest.calls == ["bind", "get"]


async def test_a_binding_that_did_not_take_effect_fails_with_its_error():
    rest = FakeRest(error=ServerError("broken"), found=on(""))
    with pytest.raises(ServerError, match="broken"):
        await CarefulCalls(rest).bind_pod(POD, "n1")


async def test_a_pod_somebody_else_bound_is_a_conflict():
    rest = FakeRest(error=ServerError("broken"), found=on("n2"))
    with pytest.raises(Conflict, match="already assigned to node n2"):
        await CarefulCalls(rest).bind_pod(POD, "n1")


async def test_a_pod_that_is_gone_fails_with_the_first_error():
    rest = FakeRest(error=StreamEnded("cut"), found=NotFound("gone"))
    with pytest.raises(StreamEnded):
        await CarefulCalls(rest).bind_pod(POD, "n1")


@pytest.mark.parametrize("error", [DeadlineExceeded("late", sent=False), Conflict("no")])
async def test_what_certainly_had_no_effect_is_not_looked_into(error):
    rest = FakeRest(error=error)
    with pytest.raises(type(error)):
        await CarefulCalls(rest).bind_pod(POD, "n1")
    assert rest.calls == ["bind"]


@pytest.mark.parametrize(
    "write",
    [
        lambda calls: calls.bind_pod(POD, "n1"),
        lambda calls: calls.patch_pod_status(POD, {}),
        lambda calls: calls.delete_pod(POD),
        lambda calls: calls.update(POD),
    ],
    ids=["binding", "status", "deletion", "update"],
)
async def test_who_does_not_lead_writes_nothing(write):
    rest = FakeRest()
    with pytest.raises(ConnectFailed, match="does not hold the leader lease"):
        await write(CarefulCalls(rest, may_write=lambda: False))
    assert rest.calls == []
    await write(CarefulCalls(rest, may_write=lambda: True))
    assert len(rest.calls) == 1


async def test_dispatcher_metrics_tell_success_from_failure():
    registry = Registry()
    metrics = SchedulerMetrics(registry, MetricGates(async_api_calls=True))
    good = MeasuredCalls(CarefulCalls(FakeRest()), metrics, ManualClock())
    await good.bind_pod(POD, "n1")
    await good.patch_pod_status(POD, {})
    await good.delete_pod(POD)
    assert await good.update(POD) is POD
    bad = MeasuredCalls(CarefulCalls(FakeRest(error=Conflict("no"))), metrics, ManualClock())
    with pytest.raises(Conflict):
        await bad.bind_pod(POD, "n1")
    totals = {
        labels: cell.value
        for labels, cell in metrics.async_api_call_execution_total.cells().items()
    }
    assert totals == {
        ("pod_binding", "success"): 1,
        ("pod_status_patch", "success"): 1,
        ("pod_binding", "error"): 1,
    }


async def test_a_dry_run_says_what_it_would_do(caplog):
    calls = DryRunCalls()
    with caplog.at_level(10):
        await calls.bind_pod(POD, "n1")
        await calls.patch_pod_status(POD, {"status": {}})
        await calls.delete_pod(POD)
        assert await calls.update(POD) is POD
        DryRunRecorder().event(POD, None, "Normal", "Scheduled", "Binding", "note")
    assert [record.msg for record in caplog.records] == [
        "Would bind pod to node",
        "Would patch pod status",
        "Would delete pod",
        "Would update object",
        "Would record event",
    ]
