"""NodeResourcesFit: the specification's checklist on filtering, scoring, hints and signature."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import cluster, hint, make, passes, scores, verdict

from kubesched.api.meta import ObjectMeta
from kubesched.api.resource_v1 import DeviceClass, DeviceClassSpec
from kubesched.api.resources import filter_requests, node_allocatable
from kubesched.base.errors import ConfigError
from kubesched.config.features import FeatureGates
from kubesched.config.plugin_args import (
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    REQUESTED_TO_CAPACITY_RATIO,
    NodeResourcesFitArgs,
    RequestedToCapacityRatioParam,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
)
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import Action, Hint, Resource
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import Code
from kubesched.insight.state.memory import MemoryListers
from kubesched.plugins.node_resources.fit import NodeResourcesFit
from kubesched.plugins.node_resources.needs import fits_empty_node, has_grown, needs_of
from kubesched.plugins.node_resources.scored_resources import ScoredResources
from kubesched.plugins.node_resources.strategies import broken_linear
from kubesched.testing import make_node, make_pod

U, UU = Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE
GPU = "example.com/gpu"


def asking(**amounts):
    pod = make_pod("p")
    for name, amount in amounts.items():
        pod.request(name.replace("_", "-"), amount)
    return pod


def using(node="n", **amounts):
    pod = asking(**amounts)
    pod.json["metadata"]["name"] = f"on-{node}"
    return pod.on(node)


def device_classes(*classes):
    """Listers that know these device classes."""
    listers = MemoryListers()
    for each in classes:
        listers.of(DeviceClass).put(each)
    return listers


def device_class(name, resource=None):
    return DeviceClass(
        metadata=ObjectMeta(name=name), spec=DeviceClassSpec(extended_resource_name=resource)
    )


# -- filter ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "used", "pod", "code", "reasons"),
    [
        pytest.param(
            {"cpu": "1"},
            {"cpu": "1"},
            asking(),
            None,
            (),
            id="a pod that asks for nothing fits a full node",
        ),
        pytest.param(
            {"cpu": "4", "pods": "1"},
            {},
            asking(),
            U,
            ("Too many pods",),
            id="unless there are too many pods",
        ),
        pytest.param(
            {"cpu": "4"},
            {"cpu": "3500m"},
            asking(cpu="500m"),
            None,
            (),
            id="exactly what is left fits",
        ),
        pytest.param(
            {"cpu": "4"},
            {"cpu": "3500m"},
            asking(cpu="600m"),
            U,
            ("Insufficient cpu",),
            id="more than is left does not",
        ),
        pytest.param(
            {"cpu": "4"},
            {"cpu": "3500m"},
            asking(cpu="5"),
            UU,
            ("Insufficient cpu",),
            id="more than there is never will",
        ),
        pytest.param(
            {"cpu": "1", "memory": "1Gi"},
            {"cpu": "1", "memory": "1Gi"},
            asking(cpu="1", memory="1Gi"),
            U,
            ("Insufficient cpu", "Insufficient memory"),
            id="all shortages are told, CPU first",
        ),
        pytest.param(
            {"cpu": "1", "memory": "1Gi"},
            {"cpu": "1", "memory": "1Gi"},
            asking(cpu="1", memory="2Gi"),
            UU,
            ("Insufficient cpu", "Insufficient memory"),
            id="one hopeless shortage decides",
        ),
        pytest.param(
            {"cpu": "4", "pods": "1"},
            {},
            asking(cpu="5"),
            UU,
            ("Too many pods", "Insufficient cpu"),
            id="too many pods and a hopeless shortage",
        ),
        pytest.param(
            {"cpu": "4"},
            {},
            asking(**{GPU: "1"}),
            UU,
            (f"Insufficient {GPU}",),
            id="a device no node has",
        ),
        pytest.param(
            {"cpu": "4"}, {}, asking(**{GPU: "0"}), None, (), id="none of a device no node has"
        ),
        pytest.param(
            {"cpu": "4", "ephemeral-storage": "20"},
            {"ephemeral_storage": "10"},
            asking(ephemeral_storage="15"),
            U,
            ("Insufficient ephemeral-storage",),
            id="storage that is taken",
        ),
        pytest.param(
            {"cpu": "4", "ephemeral-storage": "20"},
            {"ephemeral_storage": "10"},
            asking(ephemeral_storage="25"),
            UU,
            ("Insufficient ephemeral-storage",),
            id="more storage than there is",
        ),
        pytest.param(
            {"cpu": "4", "hugepages-2Mi": "4Mi"},
            {},
            asking(**{"hugepages-2Mi": "6Mi"}),
            UU,
            ("Insufficient hugepages-2Mi",),
            id="huge pages",
        ),
    ],
)
def test_filter(node, used, pod, code, reasons):
    table = cluster(make_node("n").capacity(**node), pods=[using(**used)])
    told = verdict(make(NodeResourcesFit, table), pod, table)
    if code is None:
        assert told is None
    else:
        assert (told.code, told.reasons) == (code, reasons)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_the_form_for_one_row_gives_the_verdict_on_it(data):
    amount = st.sampled_from(["0", "1", "2", "3", str(2**62), str(2**63 - 1)])
    node = make_node("n").capacity(
        cpu=data.draw(amount), memory=data.draw(amount), pods=data.draw(st.sampled_from(["0", "2"]))
    )
    pods = [make_pod(f"p{at}").on("n").memory(data.draw(amount)) for at in range(2)]
    table = cluster(node, pods=pods[: data.draw(st.integers(0, 2))])
    pod = asking(cpu=data.draw(amount), memory=data.draw(amount))
    plugin, state = make(NodeResourcesFit, table), CycleState()
    answer = verdict(plugin, pod, table)
    plugin.pre_filter(state, pod.build(), NodeColumns(table))
    assert plugin.filter_rule(state, pod.build()).at(0) == (answer is None)


def test_a_node_that_allows_no_pods_takes_none():
    node = make_node("n")
    del node.json["status"]["allocatable"]["pods"]
    table = cluster(node)
    assert verdict(make(NodeResourcesFit, table), asking(), table).reasons == ("Too many pods",)


@pytest.mark.parametrize(
    ("resource", "args", "ignored"),
    [
        pytest.param(GPU, NodeResourcesFitArgs(ignored_resources=(GPU,)), True, id="by name"),
        pytest.param(
            GPU, NodeResourcesFitArgs(ignored_resource_groups=("example.com",)), True, id="by group"
        ),
        pytest.param(
            GPU,
            NodeResourcesFitArgs(ignored_resource_groups=("example",)),
            False,
            id="not by half a group",
        ),
        pytest.param(
            "hugepages-2Mi",
            NodeResourcesFitArgs(ignored_resources=("hugepages-2Mi",)),
            False,
            id="huge pages never",
        ),
    ],
)
def test_ignored_resources(resource, args, ignored):
    table = cluster(make_node("n"))
    plugin = make(NodeResourcesFit, table, args)
    assert passes(plugin, asking(**{resource: "1"}), table) is ignored


def test_more_resources_than_an_integer_has_bits_are_told_apart():
    names = [f"example.com/r{i}" for i in range(70)]
    table = cluster(make_node("n1"), make_node("n2").offers(names[3], "1"))
    plugin, pod = make(NodeResourcesFit, table), asking(**dict.fromkeys(names, "1"))
    every = {f"Insufficient {name}" for name in names}
    assert set(verdict(plugin, pod, table, "n1").reasons) == every
    assert set(verdict(plugin, pod, table, "n2").reasons) == every - {f"Insufficient {names[3]}"}


def test_a_scored_resource_that_no_node_has_yet_counts_once_one_has_it():
    table = cluster(make_node("n").capacity(cpu="10"))
    plugin = make(NodeResourcesFit, table, strategy(LEAST_ALLOCATED, ((GPU, 1), ("cpu", 1))))
    pod, state = asking(cpu="5", **{GPU: "1"}).build(), CycleState()
    plugin.pre_score(state, pod, NodeColumns(table))
    assert plugin.score_nodes(state, pod, NodeColumns(table)).tolist() == [50]
    table.set_node(make_node("n").capacity(**{"cpu": "10", GPU: "10"}).build())
    assert plugin.score_nodes(state, pod, NodeColumns(table)).tolist() == [70]


def test_a_pending_pods_strange_resources_cost_the_table_nothing():
    table = cluster(make_node("n"))
    before = dict(table.resource_index)
    verdict(make(NodeResourcesFit, table), asking(**{"example.com/never-seen": "1"}), table)
    assert table.resource_index == before


@pytest.mark.parametrize(
    ("offered", "used", "classes", "gate", "code"),
    [
        pytest.param(
            None, 0, [device_class("c", GPU)], True, None, id="the node offers none, a class does"
        ),
        pytest.param(
            "0", 0, [device_class("c", GPU)], True, None, id="the node offers 0, a class some"
        ),
        pytest.param(
            "4", 4, [device_class("c", GPU)], True, U, id="the node's own devices are taken"
        ),
        pytest.param(None, 0, [device_class("c", GPU)], False, UU, id="the gate is off"),
        pytest.param(
            None, 0, [device_class("c", "example.com/other")], True, UU, id="no class offers it"
        ),
        pytest.param(None, 0, [device_class("c")], True, UU, id="a class without resource name"),
    ],
)
def test_devices_behind_extended_resources(offered, used, classes, gate, code):
    node = make_node("n")
    if offered is not None:
        node.offers(GPU, offered)
    table = cluster(node, pods=[using(**{GPU: str(used)})] if used else [])
    plugin = make(
        NodeResourcesFit,
        table,
        gates=FeatureGates(DRAExtendedResource=gate),
        listers=device_classes(*classes),
    )
    pod = asking(**{GPU: "1"})
    answer = verdict(plugin, pod, table)
    assert (None if answer is None else answer.code) is code
    state = CycleState()
    plugin.pre_filter(state, pod.build(), NodeColumns(table))
    assert plugin.filter_rule(state, pod.build()).at(0) is (code is None)


def test_every_device_class_offers_a_resource_of_its_own_name():
    table = cluster(make_node("n"))
    plugin = make(NodeResourcesFit, table, listers=device_classes(device_class("c")))
    assert passes(plugin, asking(**{"deviceclass.resource.kubernetes.io/c": "1"}), table)


def test_kept_verdicts_die_when_device_classes_change():
    table, classes = cluster(make_node("n")), device_classes(device_class("c", GPU))
    plugin = make(NodeResourcesFit, table, listers=classes)

    def version(pod):
        state = CycleState()
        plugin.pre_filter(state, pod.build(), NodeColumns(table))
        return plugin.filter_rule(state, pod.build()).premise()

    before, plain = version(asking(**{GPU: "1"})), version(asking(cpu="1"))
    classes.of(DeviceClass).put(device_class("d"))
    assert version(asking(**{GPU: "1"})) != before
    assert version(asking(cpu="1")) == plain


def test_filtering_without_prepared_state_is_an_error():
    table = cluster(make_node("n"))
    answer = make(NodeResourcesFit, table).filter_nodes(
        CycleState(), asking().build(), NodeColumns(table)
    )
    assert answer.code is Code.ERROR
    assert answer.message == 'error reading "PreFilterNodeResourcesFit" from cycleState: not found'


# -- score -----------------------------------------------------------------------------------------


def strategy(kind, resources=(("cpu", 1), ("memory", 1)), shape=()):
    points = tuple(UtilizationShapePoint(utilization=u, score=s) for u, s in shape)
    return NodeResourcesFitArgs(
        scoring_strategy=ScoringStrategy(
            type=kind,
            resources=tuple(ResourceSpec(name=n, weight=w) for n, w in resources),
            requested_to_capacity_ratio=(
                RequestedToCapacityRatioParam(shape=points) if shape else None
            ),
        )
    )


LEAST = strategy(LEAST_ALLOCATED)
MOST = strategy(MOST_ALLOCATED)
CPU3 = (("cpu", 3), ("memory", 1))
MEMORY3 = (("memory", 3), ("cpu", 1))
FALLING = ((0, 10), (100, 0))


def ratio(shape, resources=(("cpu", 1), ("memory", 1))):
    return strategy(REQUESTED_TO_CAPACITY_RATIO, resources, shape)


def percent(cpu, memory=None):
    """A pod that uses so many percent of a node with 100 cores and 100 bytes of memory."""
    return asking(cpu=str(cpu), memory=str(memory if memory is not None else 0))


HUNDRED = {"cpu": "100", "memory": "100"}


@pytest.mark.parametrize(
    ("args", "node", "used", "pod", "expected"),
    [
        pytest.param(LEAST, {"cpu": "8", "memory": "32Gi"}, {"cpu": "1500m", "memory": "4Gi"},
                     asking(cpu="1", memory="2Gi"), 74, id="least: the worked example"),
        pytest.param(strategy(LEAST_ALLOCATED, CPU3), {"cpu": "8", "memory": "32Gi"},
                     {"cpu": "1500m", "memory": "4Gi"}, asking(cpu="1", memory="2Gi"), 71,
                     id="least: the worked example with weights"),
        pytest.param(MOST, {"cpu": "8", "memory": "32Gi"}, {"cpu": "1500m", "memory": "4Gi"},
                     asking(cpu="1", memory="2Gi"), 24, id="most: the worked example"),
        pytest.param(
            LEAST, {"cpu": "4", "memory": "4Gi"}, {}, make_pod("p").spec(containers=[]), 100,
            id="least: a pod without containers on an empty node",
        ),
        pytest.param(LEAST, HUNDRED, {}, percent(101, 50), 25,
                     id="least: an overcommitted resource counts 0"),
        pytest.param(strategy(LEAST_ALLOCATED, MEMORY3), HUNDRED, {}, percent(75, 40), 51,
                     id="least: weights"),
        pytest.param(MOST, {"cpu": "10", "memory": "10"}, {}, asking(cpu="12", memory="3"), 65,
                     id="most: beyond full is full"),
        pytest.param(LEAST, HUNDRED, {}, percent(40, 15), 72, id="least: the mean is rounded down"),
        pytest.param(ratio(FALLING), HUNDRED, {}, percent(40, 15), 73,
                     id="ratio: the mean is rounded to nearest"),
        pytest.param(ratio(((0, 0), (100, 3)), (("cpu", 2), ("memory", 5))), HUNDRED, {},
                     percent(33, 80), 20, id="ratio: weights"),
        pytest.param(ratio(((0, 10), (70, 0)), (("cpu", 1), ("memory", 3))), HUNDRED, {},
                     percent(33, 50), 35, id="ratio: slopes are truncated towards zero"),
        pytest.param(ratio(((0, 0), (100, 10)), (("cpu", 9), ("memory", 1))), HUNDRED, {},
                     percent(0, 50), 50,
                     id="ratio: a resource that scores 0 is left out with its weight"),
        pytest.param(strategy(LEAST_ALLOCATED, ((GPU, 1),)), {"cpu": "1", GPU: "4"}, {},
                     asking(**{GPU: "2"}), 50, id="least: a requested device"),
        pytest.param(strategy(LEAST_ALLOCATED, ((GPU, 1), ("cpu", 1))), {"cpu": "10", GPU: "4"}, {},
                     asking(cpu="2"), 80, id="least: a device that is not requested is left out"),
        pytest.param(
            LEAST, {"cpu": "8", "memory": "32Gi"}, {},
            make_pod("p").spec(resources={"requests": {"cpu": "4", "memory": "16Gi"}}), 98,
            id="least: pod-level requests are left out of the score",
        ),
        pytest.param(LEAST, {"cpu": "1000", "memory": str(2**45)}, {},
                     asking(cpu="500", memory=str(2**44 + 1)), 49,
                     id="least: capacities too large for doubles are exact"),
        pytest.param(
            LEAST, {"cpu": "1000", "memory": "8Ei"}, {}, asking(cpu="500", memory="0"), 25,
            id="least: absurd capacities overflow as they do upstream",
        ),
    ],
)  # fmt: skip
def test_score(args, node, used, pod, expected):
    table = cluster(make_node("n").capacity(**node), pods=[using(**used)] if used else [])
    plugin = make(NodeResourcesFit, table, args)
    assert scores(plugin, pod, table) == {"n": expected}
    state = CycleState()
    plugin.pre_score(state, pod.build(), NodeColumns(table))
    assert plugin.score_rule(state, pod.build()).at(0) == expected


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(LEAST, id="least"),
        pytest.param(MOST, id="most"),
        pytest.param(ratio(FALLING), id="ratio"),
    ],
)
def test_a_node_that_offers_nothing_scores_nothing(args):
    table = cluster(make_node("n").capacity(), make_node("m").capacity(cpu="4"))
    assert scores(make(NodeResourcesFit, table, args), asking(cpu="1"), table)["n"] == 0


def test_an_empty_list_of_resources_is_an_error():
    table = cluster(make_node("n"))
    plugin = make(NodeResourcesFit, table)
    plugin._scored = ScoredResources(())
    answer = scores(plugin, asking(cpu="1"), table)
    assert (answer.code, answer.message) == (Code.ERROR, "resources not found")


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        pytest.param(10, 0, id="before the first point"),
        pytest.param(20, 0, id="at the first point"),
        pytest.param(33, 16, id="between the points"),
        pytest.param(60, 50, id="at the last point"),
        pytest.param(61, 50, id="past the last point"),
    ],
)
def test_broken_line(at, expected):
    assert broken_linear([(20, 0), (60, 50)], at) == expected


def test_a_falling_line_is_truncated_towards_zero():
    assert broken_linear([(0, 100), (70, 0)], 33) == 53


def test_pod_level_requests_are_filtered_on_and_accounted_for_but_not_scored():
    pod = make_pod("p").spec(resources={"requests": {"cpu": "4", "memory": "8Gi"}})
    table = cluster(make_node("small").capacity(cpu="2", memory="16Gi"))
    assert verdict(make(NodeResourcesFit, table), pod, table).reasons == ("Insufficient cpu",)
    table = cluster(make_node("n").capacity(cpu="8", memory="16Gi"), pods=[pod.on("n")])
    assert (table.nonzero_cpu.cells[0], table.nonzero_memory.cells[0]) == (4000, 8 << 30)


@pytest.mark.parametrize(
    ("args", "field"),
    [
        pytest.param(strategy(LEAST_ALLOCATED, (("cpu", 101),)), "weight", id="a weight above 100"),
        pytest.param(strategy("Fullest"), "type", id="an unknown strategy"),
        pytest.param(
            strategy(REQUESTED_TO_CAPACITY_RATIO),
            "requestedToCapacityRatio",
            id="a ratio without a shape",
        ),
        pytest.param(ratio(((50, 1), (50, 2))), "shape", id="a shape that does not rise"),
        pytest.param(ratio(((0, 11),)), "score", id="a shape score above 10"),
        pytest.param(
            NodeResourcesFitArgs(ignored_resource_groups=("a/b",)),
            "ignoredResourceGroups",
            id="a group with a slash",
        ),
    ],
)
def test_wrong_arguments_are_refused_at_start(args, field):
    with pytest.raises(ConfigError, match=field):
        make(NodeResourcesFit, args=args)


# -- hints and signature ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deleted", "expected"),
    [
        pytest.param(make_pod("d"), Hint.SKIP, id="a pod that was nowhere"),
        pytest.param(make_pod("d").on("n"), Hint.QUEUE, id="a pod on a node"),
        pytest.param(make_pod("d").nominated("n"), Hint.QUEUE, id="a pod on its way to a node"),
    ],
)
def test_deletion_hint(deleted, expected):
    event = (Resource.ASSIGNED_POD, Action.DELETE)
    assert hint(make(NodeResourcesFit), *event, asking(cpu="1"), deleted, None) is expected


@pytest.mark.parametrize(
    ("placed", "shrinks", "expected"),
    [
        pytest.param(True, "memory", Hint.SKIP, id="another pod gives back what is not wanted"),
        pytest.param(True, "cpu", Hint.QUEUE, id="another pod gives back what is wanted"),
        pytest.param(False, "cpu", Hint.SKIP, id="a pod on no node has nothing to give back"),
    ],
)
def test_scale_down_hint(placed, shrinks, expected):
    old = asking(cpu="2", memory="2Gi").uid("2")
    new = asking(**({"cpu": "2", "memory": "2Gi"} | {shrinks: "1"})).uid("2")
    if placed:
        old.on("n"), new.on("n")
    target = asking(cpu="1").uid("1")
    event = (Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN)
    assert hint(make(NodeResourcesFit), *event, target, old, new) is expected


def test_a_pod_that_asks_for_less_is_worth_a_try():
    event = (Resource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN)
    assert hint(make(NodeResourcesFit), *event, asking(), asking(), asking()) == "always"


def test_without_resizing_a_scale_down_is_no_event():
    plugin = make(NodeResourcesFit, gates=FeatureGates(InPlacePodVerticalScaling=False))
    event = (Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN)
    assert hint(plugin, *event, asking(), asking(), asking()) is None


def offering(**amounts):
    return make_node("n").capacity(**{"cpu": "4", "memory": "4Gi", **amounts})


@pytest.mark.parametrize(
    ("old", "new", "pod", "expected"),
    [
        pytest.param(
            offering(),
            offering(memory="8Gi"),
            asking(cpu="1"),
            Hint.SKIP,
            id="more of what is not wanted",
        ),
        pytest.param(
            offering(), offering(cpu="5"), asking(cpu="1"), Hint.QUEUE, id="more of what is wanted"
        ),
        pytest.param(
            offering(pods="1"),
            offering(pods="2"),
            asking(cpu="1"),
            Hint.QUEUE,
            id="room for more pods",
        ),
        pytest.param(
            offering(),
            offering(cpu="5"),
            asking(cpu="6"),
            Hint.SKIP,
            id="still too small when empty",
        ),
        pytest.param(
            None, offering(), asking(cpu="1"), Hint.QUEUE, id="a new node that is large enough"
        ),
        pytest.param(
            None, offering(), asking(cpu="5"), Hint.SKIP, id="a new node that is too small"
        ),
        pytest.param(
            None, offering(pods="0"), asking(), Hint.SKIP, id="a new node that allows no pods"
        ),
        pytest.param(
            offering(), offering(cpu="5"), asking(), Hint.SKIP, id="a pod that wants nothing"
        ),
        pytest.param(
            offering(),
            offering(**{GPU: "1"}),
            asking(**{GPU: "1"}),
            Hint.QUEUE,
            id="a device the node did not have",
        ),
    ],
)
def test_node_hint(old, new, pod, expected):
    action = Action.ADD if old is None else Action.UPDATE_NODE_ALLOCATABLE
    assert hint(make(NodeResourcesFit), Resource.NODE, action, pod, old, new) is expected


amounts = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(["0", "1", "3"]) for name in ("cpu", "memory", GPU)}
)


@given(amounts | st.none(), amounts, st.lists(amounts, min_size=1, max_size=8))
def test_the_node_hint_follows_from_needs_and_offers_whatever_was_asked_before(
    before, after, asked
):
    """Answers are kept from pod to pod while an event is evaluated."""
    listers = device_classes()
    plugin = make(NodeResourcesFit, listers=listers)
    old = None if before is None else offering(**before).build()
    new = offering(**after).build()
    for number, requests in enumerate(asked):
        pod = asking(**requests).build()
        if number == 4:  # between two slices of the event
            listers.of(DeviceClass).put(device_class("c", GPU))
        backed = {GPU} if number >= 4 else set()
        needs, offers = needs_of(filter_requests(pod)), node_allocatable(new)
        is_helpful = fits_empty_node(needs, offers, backed) and (
            old is None or has_grown(needs, node_allocatable(old), offers, backed)
        )
        expected = Hint.QUEUE if is_helpful else Hint.SKIP
        assert plugin.after_node_change(pod, old, new) is expected


def test_ignored_resources_are_not_ignored_by_the_node_hint():
    plugin = make(NodeResourcesFit, args=NodeResourcesFitArgs(ignored_resources=(GPU,)))
    pod = asking(**{GPU: "1"})
    assert hint(plugin, Resource.NODE, Action.ADD, pod, None, offering()) is Hint.SKIP


def test_a_node_whose_devices_a_class_offers_is_worth_a_try():
    plugin = make(NodeResourcesFit, listers=device_classes(device_class("c", GPU)))
    pod, event = asking(**{GPU: "1"}), (Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE)
    assert hint(plugin, *event, pod, offering(), offering()) is Hint.QUEUE


class Ready:
    """An object that needs no building."""

    def __init__(self, built):
        self.built = built

    def build(self):
        return self.built


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(
            None, device_class("c", GPU), Hint.QUEUE, id="a new class offers the resource"
        ),
        pytest.param(
            None, device_class("c", "example.com/x"), Hint.SKIP, id="a new class offers another"
        ),
        pytest.param(
            device_class("c"), device_class("c", GPU), Hint.QUEUE, id="a class begins to offer it"
        ),
        pytest.param(
            device_class("c", GPU),
            device_class("c", GPU),
            Hint.SKIP,
            id="a class offered it before",
        ),
        pytest.param(
            device_class("c", GPU), device_class("c"), Hint.SKIP, id="a class stops offering it"
        ),
    ],
)
def test_device_class_hint(old, new, expected):
    action = Action.ADD if old is None else Action.UPDATE
    before = None if old is None else Ready(old)
    event = (Resource.DEVICE_CLASS, action)
    pod = asking(**{GPU: "1"})
    assert hint(make(NodeResourcesFit), *event, pod, before, Ready(new)) is expected


def test_the_implicit_name_of_a_class_matters_only_when_the_class_is_new():
    pod = asking(**{"deviceclass.resource.kubernetes.io/c": "1"})
    plugin, new = make(NodeResourcesFit), Ready(device_class("c", "example.com/x"))
    assert hint(plugin, Resource.DEVICE_CLASS, Action.ADD, pod, None, new) is Hint.QUEUE
    old = Ready(device_class("c"))
    assert hint(plugin, Resource.DEVICE_CLASS, Action.UPDATE, pod, old, new) is Hint.SKIP


def test_the_signature_is_the_request_vector():
    fragment = make(NodeResourcesFit).sign_pod(
        asking(cpu="1500m", memory="1Gi", **{GPU: "2"}).build()
    )
    assert fragment == {
        "v1.Pod.Spec.ContainerRequestsAndOverheads()": {
            "MilliCPU": 1500,
            "Memory": 1 << 30,
            "EphemeralStorage": 0,
            "AllowedPodNumber": 0,
            "ScalarResources": {GPU: 2},
        }
    }


def test_a_pod_whose_devices_a_class_offers_has_no_signature():
    plugin = make(NodeResourcesFit, listers=device_classes(device_class("c", GPU)))
    answer = plugin.sign_pod(asking(**{GPU: "1"}).build())
    assert answer.code is U
    assert (
        answer.message == "signature disabled when dra extended resources are used in the cluster"
    )
    assert isinstance(plugin.sign_pod(asking(**{GPU: "0"}).build()), dict)
