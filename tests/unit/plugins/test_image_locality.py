"""ImageLocality: the specification's checklist on images."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import cluster, make, scores

from kubesched.config.features import defaults
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.plugins.image_locality import (
    ImageLocality,
    bytes_on,
    bytes_present,
    normalized_image_name,
)
from kubesched.testing import make_node, make_pod

MIB = 1 << 20


def nodes(count, holders, *, size, name="img:1"):
    built = [make_node(f"n{i}") for i in range(count)]
    for node in built[:holders]:
        node.image(name, size_bytes=size)
    return built


def wanting(*images):
    first, *rest = images
    pod = make_pod("p").image(first)
    for image in rest:
        pod.container(image=image)
    return pod


def best(table, pod):
    return scores(make(ImageLocality, table), pod, table)["n0"]


@pytest.mark.parametrize(
    ("built", "pod", "expected"),
    [
        pytest.param(
            nodes(2, 1, size=45 * MIB),
            wanting("img:1"),
            0,
            id="45 MiB on half of the nodes is below the threshold",
        ),
        pytest.param(
            nodes(2, 1, size=500 * MIB),
            wanting("other:1"),
            0,
            id="an absent image is worth nothing",
        ),
        pytest.param(
            nodes(5, 2, size=500 * MIB), wanting("img:1"), 18, id="500 MiB on 2 of 5 nodes"
        ),
        pytest.param(
            nodes(2, 1, size=5000 * MIB),
            wanting("img:1", "x:1"),
            100,
            id="5000 MiB for two containers is the most that counts",
        ),
        pytest.param(
            nodes(4, 1, size=3000 * MIB), wanting("img:1"), 74, id="3000 MiB on 1 of 4 nodes"
        ),
        pytest.param(
            nodes(2, 1, size=400 * MIB),
            wanting("x:1").spec(volumes=[{"name": "v", "image": {"reference": "img:1"}}]),
            8,
            id="an image volume enlarges what counts as full",
        ),
        pytest.param(
            nodes(2, 1, size=400 * MIB),
            wanting("x:1").init_container(image="img:1"),
            8,
            id="an init container enlarges what counts as full",
        ),
        pytest.param(
            nodes(2, 1, size=400 * MIB),
            wanting("img:1", "img:1"),
            19,
            id="an image used twice counts twice",
        ),
        pytest.param(
            nodes(1, 1, size=400 * MIB, name="img:latest"),
            wanting("img"),
            38,
            id="no tag means latest",
        ),
        pytest.param(
            nodes(1, 0, size=1),
            make_pod("p").spec(containers=[]),
            0,
            id="a pod without containers and images scores nothing",
        ),
        pytest.param(
            nodes(1, 1, size=400 * MIB),
            make_pod("p").spec(
                containers=[], volumes=[{"name": "v", "image": {"reference": "img:1"}}]
            ),
            38,
            id="a pod without containers has its image volume",
        ),
    ],
)
def test_scores(built, pod, expected):
    assert best(cluster(*built), pod) == expected


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        pytest.param(["x:1"], 18, id="only containers enlarge what counts as full"),
        pytest.param([], 100, id="without containers everything is there"),
    ],
)
def test_image_volumes_in_1_36(containers, expected):
    volumes = [{"name": "v", "image": {"reference": "img:1"}}]
    pod = wanting("x:1").spec(volumes=volumes)
    if not containers:
        pod.spec(containers=[])
    table = cluster(*nodes(2 if containers else 1, 1, size=400 * MIB))
    plugin = make(ImageLocality, table, gates=defaults("1.36"))
    assert scores(plugin, pod, table)["n0"] == expected


def test_two_images_add_up():
    built = nodes(5, 2, size=500 * MIB)
    for node in built:
        node.image("second:1", size_bytes=120 * MIB)
    assert best(cluster(*built), wanting("img:1", "second:1")) == 15


def test_spread_is_computed_in_doubles():
    # 700 MiB on 7 of 10 nodes: one byte below the exact product.
    table = cluster(*nodes(10, 7, size=700 * MIB))
    assert bytes_on(NodeColumns(table), "img:1")[0] == 513802239
    assert bytes_present(table, "img:1", 0) == 513802239


def test_a_node_sees_image_counts_as_of_its_own_last_change():
    table = cluster(make_node("n0").image("img:1", size_bytes=800 * MIB), make_node("n1"))
    plugin, pod = make(ImageLocality, table), wanting("img:1")
    assert scores(plugin, pod, table)["n0"] == 38  # on 1 of 2 nodes
    table.set_node(make_node("n1").image("img:1", size_bytes=1).build())
    table.refresh()
    assert scores(plugin, pod, table) == {"n0": 38, "n1": 79}
    table.add_pod(PodInfo(make_pod("q").build()), "n0")
    table.refresh()
    assert scores(plugin, pod, table) == {"n0": 79, "n1": 79}


def test_a_node_looked_at_before_the_next_cycle_begins_is_looked_at_again_after():
    table = cluster(make_node("n0").image("img:1", size_bytes=800 * MIB), make_node("n1"))
    plugin, pod = make(ImageLocality, table), wanting("img:1")
    table.set_node(make_node("n1").image("img:1", size_bytes=1).build())
    assert scores(plugin, pod, table)["n1"] == 38  # the count as the last cycle saw it
    table.refresh()
    assert scores(plugin, pod, table)["n1"] == 79


def test_the_first_node_to_report_an_image_decides_its_size():
    table = cluster(
        make_node("n0").image("img:1", size_bytes=500 * MIB),
        make_node("n1").image("img:1", size_bytes=900 * MIB),
    )
    assert scores(make(ImageLocality, table), wanting("img:1"), table) == {"n0": 48, "n1": 48}


@pytest.mark.parametrize(
    ("written", "reported"),
    [
        pytest.param("x", "x:latest", id="a bare name"),
        pytest.param("r:5000/x", "r:5000/x:latest", id="a port is not a tag"),
        pytest.param("x:1", "x:1", id="a tag stays"),
        pytest.param("x@sha256:ab", "x@sha256:ab", id="a digest stays"),
    ],
)
def test_names_are_completed_as_nodes_report_them(written, reported):
    assert normalized_image_name(written) == reported


def test_the_signature_lists_each_image_once():
    fragment = make(ImageLocality).sign_pod(wanting("b:1", "a", "b:1").build())
    assert fragment == {"v1.Pod.Spec.CanonicalImageNames()": ["a:latest", "b:1"]}


def premise_of(table, pod):
    return make(ImageLocality, table).score_rule(CycleState(), pod.build()).premise


def test_only_known_images_tie_answers_to_the_number_of_nodes():
    table = cluster(*nodes(3, 1, size=500 * MIB))
    absent, known = premise_of(table, wanting("other")), premise_of(table, wanting("img:1"))
    before = known()
    assert absent() == 0
    assert before
    table.set_node(make_node("n3").build())
    table.refresh()
    assert absent() == 0
    assert known() != before, "500 MiB on 1 of 3 nodes score 14, on 1 of 4 nodes 10"
    table.set_node(make_node("n4").image("other", size_bytes=1).build())
    table.refresh()
    assert absent() == 0, "nodes report names with tags"
    table.set_node(make_node("n4").image("other:latest", size_bytes=1).build())
    assert absent() != 0


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_scores_stay_while_the_premise_and_the_row_do(data):
    """Kept scores of rows that are not dirty are those that are computed anew, for as long as the
    premise says so.
    """
    pod = wanting(*data.draw(st.sampled_from([("a:1",), ("a:1", "b:1"), ("b:1", "a:1", "b:1")])))
    table = cluster(make_node("n0").image("a:1", size_bytes=900 * MIB), make_node("n1"))
    rule = make(ImageLocality, table).score_rule(CycleState(), pod.build())
    value, kept, cursor = rule.premise(), {}, 0
    for _ in range(data.draw(st.integers(1, 25))):
        for _ in range(data.draw(st.integers(0, 2))):
            change(data, table)
        if not table.node_count:
            continue
        table.refresh()
        if rule.premise() != value or cursor == 0:
            value, kept = rule.premise(), {row: rule.at(row) for row in table.row_of.values()}
        for row in table.pod_log.since(cursor):
            kept[row] = rule.at(row)
        cursor = table.pod_log.end
        assert {row: kept[row] for row in table.row_of.values()} == {
            row: rule.at(row) for row in table.row_of.values()
        }


def change(data, table):
    name = f"n{data.draw(st.integers(0, 11))}"
    match data.draw(st.integers(0, 3)):
        case 0 if name in table.row_of:
            table.remove_node(name)
        case 1 if name in table.row_of:
            table.add_pod(PodInfo(make_pod("q").build()), name)
        case _:
            node = make_node(name)
            for image in data.draw(st.sets(st.sampled_from(["a:1", "b:1", "c:1"]))):
                node.image(image, size_bytes=data.draw(st.sampled_from([300, 900])) * MIB)
            table.set_node(node.build())
