"""The node table as columns equals what the nodes and pods say, one by one."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kubesched.config.features import DEFAULT_GATES
from kubesched.config.load import default_config
from kubesched.insight.page import nodes
from kubesched.insight.page.source import view_of_state
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.testing import make_node, make_pod


def table_of(*objects):
    state = ClusterState("test")
    for each in objects:
        state.put(each)
    return view_of_state(state, default_config(), DEFAULT_GATES).assembly.table


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(1, 64), st.sampled_from("abc"), st.booleans()), max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4000)), max_size=12),
)
def test_columns_equal_the_sums_over_objects(sizes, pods):
    built = [
        make_node(f"n{i}").capacity(cpu=str(cpu), memory="8Gi", pods=50).zone(zone).build()
        for i, (cpu, zone, _) in enumerate(sizes)
    ]
    placed = [
        make_pod(f"p{k}").cpu(f"{cpu}m").on(f"n{at}").build() for k, (at, cpu) in enumerate(pods)
    ]
    header, columns = nodes.node_columns(table_of(*built, *placed))
    names = columns["name"].tobytes().decode().split("\0")[:-1]
    assert sorted(names) == sorted(node.metadata.name for node in built)
    for i, name in enumerate(names):
        cpu, zone, _ = sizes[int(name[1:])]
        mine = [milli for at, milli in pods if f"n{at}" == name]
        assert columns["allocatable cpu"][i] == cpu * 1000
        assert columns["requested cpu"][i] == sum(mine)
        assert columns["requested pods"][i] == len(mine)
        assert header["zones"][columns["zone"][i]] == zone


def test_flags_tell_cordoned_tainted_and_not_ready():
    plain = make_node("plain").build()
    cordoned = make_node("cordoned").unschedulable().build()
    tainted = make_node("tainted").taint("a", "b", "NoSchedule").build()
    table = table_of(plain, cordoned, tainted)
    _, columns = nodes.node_columns(table)
    flags = dict(
        zip(columns["name"].tobytes().decode().split("\0"), columns["flags"].tolist(), strict=False)
    )
    assert flags == {"plain": 0, "cordoned": nodes.CORDONED, "tainted": nodes.TAINTED}


def test_changed_rows_equal_the_same_rows_of_all_columns():
    table = table_of(
        *(make_node(f"n{i}").build() for i in range(5)), make_pod("p").on("n3").build()
    )
    _, columns = nodes.node_columns(table)
    rows = [int(row) for row in columns["row"][1:4]]
    changed = nodes.changed_rows(table, rows)
    for name, values in changed.items():
        wanted = columns[name][np.isin(columns["row"], rows)]
        assert sorted(values) == sorted(wanted.tolist()), name


def test_one_node_in_full():
    table = table_of(
        make_node("n").label("disk", "ssd").taint("gpu", "yes", "NoSchedule").build(),
        make_pod("p").cpu("500m").on("n").build(),
    )
    details = nodes.node_details(table, "n")
    assert details["labels"]["disk"] == "ssd"
    assert details["taints"] == ["gpu=yes:NoSchedule"]
    assert details["pods"][0]["pod"] == "default/p"
    assert details["amounts"]["cpu"][0] == 500
    assert nodes.node_details(table, "absent") is None
