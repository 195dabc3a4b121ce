"""ImageLocality: the specification's checklist on images."""

import pytest
from judging import cluster, make, scores

from kubesched.framework.cycle_state import CycleState
from kubesched.plugins.image_locality import ImageLocality, normalized_image_name
from kubesched.snapshot.pods import PodInfo
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
            18,
            id="an image volume counts without enlarging what counts as full",
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
            100,
            id="a pod without containers has its image volume and so everything",
        ),
    ],
)
def test_scores(built, pod, expected):
    assert best(cluster(*built), pod) == expected


def test_two_images_add_up():
    built = nodes(5, 2, size=500 * MIB)
    for node in built:
        node.image("second:1", size_bytes=120 * MIB)
    assert best(cluster(*built), wanting("img:1", "second:1")) == 15


def test_spread_is_computed_in_doubles():
    # 700 MiB on 7 of 10 nodes: one byte below the exact product.
    table = cluster(*nodes(10, 7, size=700 * MIB))
    plugin = make(ImageLocality, table)
    scores(plugin, wanting("img:1"), table)
    assert plugin._columns["img:1"]._values[0] == 513802239


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


def test_only_known_images_tie_answers_to_the_number_of_nodes():
    table = cluster(*nodes(3, 1, size=500 * MIB))
    plugin = make(ImageLocality, table)
    assert plugin.score_rule(CycleState(), wanting("other").build()).premise() == 0
    assert plugin.score_rule(CycleState(), wanting("img:1").build()).premise() == 3
