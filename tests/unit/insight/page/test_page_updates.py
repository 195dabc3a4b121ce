"""The event stream: a reader that applies every message knows what a reader that fetches everything
knows.
"""

import asyncio
import json

from kubesched.config.features import DEFAULT_GATES
from kubesched.config.load import default_config
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.insight.page import updates
from kubesched.insight.page.nodes import node_columns
from kubesched.insight.page.source import Source, View
from kubesched.insight.page.updates import Place, Updates
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.memory import in_memory_scheduler
from kubesched.scheduler.decisions import DecisionRing, Outcome
from kubesched.testing import make_node, make_pod


def live(count=4):
    state = ClusterState("test")
    for i in range(count):
        state.put(make_node(f"n{i}").capacity(cpu="8", memory="8Gi", pods=50).build())
    assembly = in_memory_scheduler(state).assembly
    view = View(assembly=assembly, state=lambda: state, explainer=None)
    ring = DecisionRing()
    source = Source(
        kind="scheduler",
        title="test",
        view=view,
        config=default_config(),
        gates=DEFAULT_GATES,
        is_live=True,
        ring=ring,
    )
    return source, assembly.table, ring


async def following(stream, name):
    """The next event of that name."""
    async with asyncio.timeout(10):
        while True:
            event = await anext(stream)
            if event.name == name:
                return event


async def test_a_reader_is_told_to_begin_and_then_what_changed():
    source, table, ring = live()
    changes = Updates(source, period_s=0.001)
    stream = changes.events("")
    first = await following(stream, "reset")
    assert Place.parse(first.id) == changes.place()
    await following(stream, "update")  # the sizes of the queue
    pod = PodInfo(make_pod("p").cpu("500m").build())
    table.add_pod(pod, "n2")
    ring.add(QueuedPodInfo(pod, 0.0), "default-scheduler", 1.0, 0.1, Outcome.SCHEDULED, "n2", 3, 4)
    event = await following(stream, "update")
    data = json.loads(event.data)
    assert data["nodes"]["row"] == [table.row_of["n2"]]
    assert data["nodes"]["requested cpu"] == [500]
    assert data["decisions"][0][2:5] == ["default/p", "scheduled", "n2"]
    assert Place.parse(event.id) == changes.place()
    await stream.aclose()
    assert changes.readers == 0


async def test_a_reader_that_comes_back_gets_what_it_missed_and_nothing_else():
    source, table, _ring = live()
    changes = Updates(source, period_s=0.001)
    stream = changes.events("")
    first = await following(stream, "reset")
    await stream.aclose()
    table.add_pod(PodInfo(make_pod("p").cpu("1").build()), "n1")
    stream = changes.events(first.id)
    event = await anext(stream)
    assert event.name == "update"
    assert json.loads(event.data)["nodes"]["requested cpu"] == [1000]
    await stream.aclose()


async def test_ids_of_another_process_and_nonsense_mean_a_fresh_start():
    source, _table, _ring = live()
    for text in ("", "x", "deadbeef.1.2.3.4.5", "a.b.c.d.e", "1.2.3"):
        stream = Updates(source).events(text)
        assert (await anext(stream)).name == "reset"
        await stream.aclose()


async def test_new_nodes_are_named_and_long_absences_mean_fetching_all(monkeypatch):
    source, table, _ring = live()
    changes = Updates(source, period_s=0.001)
    known = str(changes.place())
    table.set_node(make_node("late").build())
    stream = changes.events(known)
    told = json.loads((await anext(stream)).data)
    assert told["identities"] == [[table.row_of["late"], "late", -1]]
    await stream.aclose()
    known = str(changes.place())
    monkeypatch.setattr(updates, "MAX_ROWS", 1)
    for i in range(2):
        table.add_pod(PodInfo(make_pod(f"p{i}").build()), f"n{i}")
    stream = changes.events(known)
    assert json.loads((await anext(stream)).data)["reload"]
    await stream.aclose()
    known = str(changes.place())
    for turn in range(2 * table.pod_log.bound):
        table.pod_log.append(turn % 2)
    stream = changes.events(known)
    assert json.loads((await anext(stream)).data)["reload"]
    await stream.aclose()


async def test_following_the_stream_equals_fetching_everything():
    source, table, _ring = live(8)
    changes = Updates(source, period_s=0.0)
    header, columns = node_columns(table)
    assert header["resources"]
    mine = {name: values.copy() for name, values in columns.items()}
    place = changes.place()
    for turn in range(30):
        table.add_pod(PodInfo(make_pod(f"p{turn}").cpu("100m").build()), f"n{turn % 8}")
        if turn % 3 == 0:
            place, _, change = changes._change(place, {})
            for k, row in enumerate(change["nodes"]["row"]):
                at = int((mine["row"] == row).nonzero()[0][0])
                for name, values in change["nodes"].items():
                    mine[name][at] = values[k]
    place, _, change = changes._change(place, {})
    for k, row in enumerate(change["nodes"]["row"]):
        at = int((mine["row"] == row).nonzero()[0][0])
        for name, values in change["nodes"].items():
            mine[name][at] = values[k]
    _, wanted = node_columns(table)
    for name, values in wanted.items():
        assert mine[name].tolist() == values.tolist(), name


async def test_readers_reload_when_another_source_is_followed():
    source, _table, _ring = live()
    changes = Updates(source, period_s=0.001)
    stream = changes.events(str(changes.place()))
    await following(stream, "update")  # the sizes of the queue
    changes.follow(live()[0])
    event = await following(stream, "reset")
    assert Place.parse(event.id) == changes.place()
    await stream.aclose()
