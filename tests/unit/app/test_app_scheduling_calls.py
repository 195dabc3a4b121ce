"""The scheduler's writes: unclear bindings are settled, a former leader writes nothing, dry runs
only talk.
"""

import asyncio
from random import Random

import pytest
from msgspec import convert, structs

from kubesched.api import codec
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.app.scheduling_calls import STATUS_TRIES, CarefulCalls, MeasuredCalls
from kubesched.base.clock import ManualClock
from kubesched.base.errors import (
    Conflict,
    ConnectFailed,
    DeadlineExceeded,
    NotFound,
    ServerError,
    StreamEnded,
)
from kubesched.base.metrics import MetricsRegistry, SchedulerMetrics
from kubesched.client.exchange import BufferedResponse
from kubesched.client.rest import RestClient
from kubesched.testing import make_pod

POD = make_pod("a").build()


class FakeRest:
    """Binds or fails as told, and shows a pod on request. A list is told item by item; its last
    item stays.
    """

    def __init__(self, *, error=None, answers=None, leads=True):
        self.errors = error if isinstance(error, list) else [error]
        self.answers = answers if isinstance(answers, list) else [answers]
        self.calls = []
        self.may_write = lambda: leads

    async def bind(self, namespace, name, uid, node_name):
        self.calls.append("bind")
        error = self.errors.pop(0) if len(self.errors) > 1 else self.errors[0]
        if error is not None:
            raise error

    def start_binding(self, namespace, name, uid, node_name, done):
        async def rest():
            await self.bind(namespace, name, uid, node_name)

        return asyncio.get_running_loop().call_soon(done, rest).cancel

    async def get(self, kind, name, namespace):
        self.calls.append("get")
        result = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(result, Exception):
            raise result
        return result

    async def patch(self, *arguments, **options):
        self.calls.append("patch")

    async def delete(self, *arguments):
        self.calls.append("delete")

    async def update_merged(self, obj):
        self.calls.append("update")
        return obj

    async def update_status(self, obj):
        self.calls.append("status")
        error = self.errors.pop(0) if len(self.errors) > 1 else self.errors[0]
        if error is not None:
            raise error
        return obj


class ReadableServer:
    """A transport that shows the pod and counts what is written."""

    def __init__(self):
        self.writes = 0

    async def request(self, request):
        self.writes += request.method != "GET"
        return BufferedResponse(200, [], codec.encode(POD))

    async def aclose(self):
        pass


def calls_over(transport, *, leads):
    return CarefulCalls(
        RestClient(transport, user_agent="t", random=Random(3), may_write=lambda: leads)
    )


async def at_once(_seconds):
    pass


def on(node):
    return structs.replace(POD, spec=structs.replace(POD.spec, node_name=node))


async def test_a_clear_answer_needs_no_second_look():
    rest = FakeRest()
    await CarefulCalls(rest).bind_pod(POD, "n1")
    assert rest.calls == ["bind"]


@pytest.mark.parametrize(
    "error", [DeadlineExceeded("late"), StreamEnded("cut"), ServerError("broken")]
)
async def test_a_binding_that_took_effect_counts_although_its_answer_was_lost(error):
    rest = FakeRest(error=error, answers=on("n1"))
    await CarefulCalls(rest).bind_pod(POD, "n1")
    assert rest.calls == ["bind", "get"]


async def test_a_binding_that_did_not_take_effect_is_sent_again():
    rest = FakeRest(error=[StreamEnded("cut"), None], answers=on(""))
    await CarefulCalls(rest, sleep=at_once).bind_pod(POD, "n1")
    assert rest.calls == ["bind", "get", "bind"]


async def test_a_binding_that_arrives_after_the_first_look_counts():
    """The second one is refused because the first was under way all the time."""
    rest = FakeRest(error=[StreamEnded("cut"), Conflict("assigned")], answers=[on(""), on("n1")])
    await CarefulCalls(rest, sleep=at_once).bind_pod(POD, "n1")
    assert rest.calls == ["bind", "get", "bind", "get"]


async def test_a_repeated_binding_that_is_refused_for_another_reason_fails_with_it():
    rest = FakeRest(error=[StreamEnded("cut"), Conflict("is being deleted")], answers=on(""))
    with pytest.raises(Conflict, match="being deleted"):
        await CarefulCalls(rest, sleep=at_once).bind_pod(POD, "n1")


async def test_an_outage_is_waited_out():
    outage = [ConnectFailed("no route")] * 20
    rest = FakeRest(error=[StreamEnded("cut"), *outage, None], answers=[*outage, on("")])
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    await CarefulCalls(rest, sleep=sleep).bind_pod(POD, "n1")
    assert rest.calls[-1] == "bind"
    assert max(pauses) == 5.0


async def test_a_server_that_only_answers_with_errors_is_believed_in_the_end():
    """T43: four tries, then the attempt fails."""
    rest, pauses = FakeRest(error=ServerError("broken"), answers=on("")), []

    async def sleep(seconds):
        pauses.append(seconds)

    with pytest.raises(ServerError, match="broken"):
        await CarefulCalls(rest, sleep=sleep).bind_pod(POD, "n1")
    assert rest.calls.count("bind") == 4
    assert pauses == [0.01, 0.05, 0.25]


@pytest.mark.parametrize(
    "errors",
    [[ServerError("unavailable", code=503)], [ServerError("broken")] * 3],
    ids=["T41: once", "T42: three times"],
)
async def test_a_server_that_fails_for_a_moment_costs_no_attempt(errors):
    rest = FakeRest(error=[*errors, None], answers=on(""))
    await CarefulCalls(rest, sleep=at_once).bind_pod(POD, "n1")
    assert rest.calls.count("bind") == len(errors) + 1


async def test_a_conflict_is_not_sent_again():
    """T44."""
    rest = FakeRest(error=Conflict("assigned"))
    with pytest.raises(Conflict):
        await CarefulCalls(rest).bind_pod(POD, "n1")
    assert rest.calls == ["bind"]


async def test_a_server_that_is_not_there_is_tried_again_since_1_37():
    refused = [ConnectFailed("connection refused")] * 3
    rest = FakeRest(error=[*refused, None])
    await CarefulCalls(rest, sleep=at_once).bind_pod(POD, "n1")
    assert rest.calls == ["bind"] * 4
    for retries, tries in ((True, 4), (False, 1)):
        rest = FakeRest(error=[*refused, *refused])
        with pytest.raises(ConnectFailed):
            await CarefulCalls(rest, retries=retries, sleep=at_once).bind_pod(POD, "n1")
        assert rest.calls == ["bind"] * tries


async def test_a_binding_by_callback_is_sent_again_too():
    rest, rests = FakeRest(error=[ConnectFailed("refused"), None]), []
    rest.start_binding = lambda *arguments: arguments[-1](lambda: rest.bind(*arguments[:-1]))
    CarefulCalls(rest, sleep=at_once).start_binding(POD, "n1", rests.append)
    (remaining,) = rests
    await remaining()
    assert rest.calls == ["bind", "bind"]


async def test_a_former_leader_does_not_send_again():
    rest = FakeRest(error=StreamEnded("cut"), answers=on(""), leads=False)
    with pytest.raises(StreamEnded):
        await CarefulCalls(rest).bind_pod(POD, "n1")
    assert rest.calls == ["bind", "get"]


async def test_a_pod_another_scheduler_bound_is_a_conflict():
    rest = FakeRest(error=ServerError("broken"), answers=on("n2"))
    with pytest.raises(Conflict, match="already assigned to node n2"):
        await CarefulCalls(rest).bind_pod(POD, "n1")


async def test_a_pod_that_is_gone_fails_with_the_first_error():
    rest = FakeRest(error=StreamEnded("cut"), answers=NotFound("gone"))
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
    transport = ReadableServer()
    with pytest.raises(ConnectFailed, match="does not hold the leader lease"):
        await write(calls_over(transport, leads=False))
    assert transport.writes == 0
    await write(calls_over(transport, leads=True))
    assert transport.writes == 1


async def test_dispatcher_metrics_tell_success_from_failure():
    registry = MetricsRegistry()
    metrics = SchedulerMetrics(registry, {"SchedulerAsyncAPICalls"})
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


# -- statuses --------------------------------------------------------------------------------------


def claim(**status):
    return convert({"metadata": {"name": "c", "uid": "u"}, "status": status}, ResourceClaim)


RESERVED = claim(reservedFor=[{"resource": "pods", "name": "p", "uid": "p"}])


@pytest.mark.parametrize(
    "error", [DeadlineExceeded("late"), StreamEnded("cut"), ServerError("broken")]
)
async def test_a_status_with_a_lost_answer_is_written_again(error):
    rest = FakeRest(error=[error, None])
    assert await CarefulCalls(rest, sleep=at_once).update_status(RESERVED) == RESERVED
    assert rest.calls == ["status", "status"]


async def test_a_conflict_after_a_lost_answer_may_be_our_own_doing():
    rest = FakeRest(error=[StreamEnded("cut"), Conflict("modified")], answers=RESERVED)
    assert await CarefulCalls(rest, sleep=at_once).update_status(RESERVED) == RESERVED
    assert rest.calls == ["status", "status", "get"]


async def test_or_that_of_another():
    rest = FakeRest(error=[StreamEnded("cut"), Conflict("modified")], answers=claim())
    with pytest.raises(Conflict):
        await CarefulCalls(rest, sleep=at_once).update_status(RESERVED)


async def test_clear_refusals_of_a_status_are_told_at_once():
    for error in (Conflict("modified"), NotFound("gone"), ConnectFailed("no route")):
        rest = FakeRest(error=error)
        with pytest.raises(type(error)):
            await CarefulCalls(rest, sleep=at_once).update_status(RESERVED)
        assert rest.calls == ["status"]


async def test_an_outcome_that_never_becomes_clear_is_an_error_after_a_bound():
    rest = FakeRest(error=ServerError("broken"))
    with pytest.raises(ServerError):
        await CarefulCalls(rest, sleep=at_once).update_status(RESERVED)
    assert rest.calls == ["status"] * STATUS_TRIES


async def test_a_former_leader_writes_no_status_again():
    rest = FakeRest(error=ServerError("broken"), leads=False)
    with pytest.raises(ServerError):
        await CarefulCalls(rest, sleep=at_once).update_status(RESERVED)
    assert rest.calls == ["status"]


@pytest.mark.parametrize(
    ("error", "answers", "calls"),
    [
        pytest.param(None, None, ["bind"], id="bound"),
        pytest.param(StreamEnded("lost"), on("n1"), ["bind", "get"], id="lost, but there"),
        pytest.param(
            [StreamEnded("lost"), None], on(""), ["bind", "get", "bind"], id="lost, sent again"
        ),
    ],
)
async def test_a_started_binding_is_settled_like_an_awaited_one(error, answers, calls):
    rest = FakeRest(error=error, answers=answers)
    left = asyncio.get_running_loop().create_future()
    CarefulCalls(rest, sleep=at_once).start_binding(POD, "n1", left.set_result)
    await (await left)()
    assert rest.calls == calls


async def test_a_former_leader_starts_no_binding():
    transport = ReadableServer()
    left = asyncio.get_running_loop().create_future()
    calls_over(transport, leads=False).start_binding(POD, "n1", left.set_result)
    with pytest.raises(ConnectFailed, match="does not hold the leader lease"):
        await (await left)()
    assert transport.writes == 0
