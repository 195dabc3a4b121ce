"""Pod requests and node allocatable: the sums, the options, the resource names, the rounding."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scalar import requests as twin

from kubesched.api import resources
from kubesched.api.core_v1 import (
    Container,
    ContainerStatus,
    Node,
    NodeStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from kubesched.api.meta import ObjectMeta
from kubesched.api.quantity import MAX_INT64, QuantityError, nanos
from kubesched.api.resources import (
    ACCOUNTED,
    ACCOUNTED_BY_CONTAINER,
    FILTERED,
    SCORED,
    NodeAllocatable,
    PodRequests,
    RequestOptions,
    ResourceClass,
    accounted_requests,
    classify,
    filter_requests,
    is_extended,
    is_native,
    node_allocatable,
    nonzero_requests,
    pod_requests,
    request_amounts,
)

MI = 2**20
GI = 2**30


def requirements(**requests):
    named = {name.replace("_", "-"): amount for name, amount in requests.items()}
    return ResourceRequirements(requests=named or None)


def app(name="app", **requests):
    return Container(name=name, resources=requirements(**requests))


def sidecar(name="sidecar", **requests):
    return Container(name=name, resources=requirements(**requests), restart_policy="Always")


def pod(*containers, init=(), status=None, **spec):
    return Pod(
        metadata=ObjectMeta(namespace="ns", name="p"),
        spec=PodSpec(containers=list(containers), init_containers=list(init) or None, **spec),
        status=status or PodStatus(),
    )


@pytest.mark.parametrize(
    ("wanted", "milli_cpu"),
    [
        pytest.param(
            pod(app(cpu="300m"), app("b", cpu="200m"), init=[app("i", cpu="400m")]),
            500,
            id="containers add up and outweigh a smaller init container",
        ),
        pytest.param(
            pod(app(cpu="300m"), app("b", cpu="200m"), init=[app("i", cpu="900m")]),
            900,
            id="a larger init container decides",
        ),
        pytest.param(
            pod(app(cpu="500m"), init=[app("i", cpu="600m"), app("j", cpu="700m")]),
            700,
            id="init containers run one after another",
        ),
        pytest.param(
            pod(app(cpu="400m"), init=[sidecar(cpu="200m"), app("i", cpu="500m")]),
            700,
            id="an init container runs beside the sidecars before it",
        ),
        pytest.param(
            pod(app(cpu="400m"), init=[app("i", cpu="500m"), sidecar(cpu="200m")]),
            600,
            id="a sidecar that starts later does not run beside it",
        ),
        pytest.param(
            pod(app(cpu="100m"), init=[sidecar("s", cpu="200m"), sidecar("t", cpu="300m")]),
            600,
            id="sidecars keep running and add up with the app",
        ),
        pytest.param(
            pod(app(cpu="500m"), overhead={"cpu": "100m"}), 600, id="overhead comes on top"
        ),
        pytest.param(pod(overhead={"cpu": "100m"}), 100, id="overhead alone counts"),
        pytest.param(
            pod(
                app(cpu="500m"),
                app("b", cpu="500m"),
                resources=requirements(cpu="2"),
                overhead={"cpu": "100m"},
            ),
            2100,
            id="a pod-level request replaces the sum, overhead stays on top",
        ),
        pytest.param(
            pod(app(cpu="0.4m"), app("b", cpu="0.4m")), 1, id="the sum is rounded, not the parts"
        ),
        pytest.param(pod(app(cpu="0.4m")), 1, id="one container is rounded up"),
        pytest.param(pod(app()), 0, id="a container without requests asks for nothing"),
        pytest.param(pod(), 0, id="a pod without containers asks for nothing"),
    ],
)
def test_cpu_of_a_pod_to_be_scheduled(wanted, milli_cpu):
    assert filter_requests(wanted).milli_cpu == milli_cpu


def test_each_resource_is_summed_on_its_own():
    wanted = pod(
        app(cpu="100m", memory="64Mi", ephemeral_storage="1Gi"),
        Container(
            name="gpu",
            resources=ResourceRequirements(
                requests={
                    "memory": "64Mi",
                    "example.com/gpu": "2",
                    "hugepages-2Mi": "4Mi",
                    "storage": "5Gi",
                    "pods": "7",
                }
            ),
        ),
        init=[app("i", memory="256Mi")],
    )
    assert pod_requests(wanted) == PodRequests(
        100, 256 * MI, GI, {"example.com/gpu": 2, "hugepages-2Mi": 4 * MI}
    )
    assert pod_requests(wanted).get("example.com/gpu") == 2
    assert [pod_requests(wanted).get(n) for n in ("cpu", "memory", "ephemeral-storage", "x")] == [
        100,
        256 * MI,
        GI,
        0,
    ]


def test_a_scalar_asked_for_with_zero_is_listed():
    gpu = ResourceRequirements(requests={"example.com/gpu": "0"})
    assert pod_requests(pod(Container(resources=gpu))).scalars == {"example.com/gpu": 0}


def test_pod_level_requests_count_only_for_supported_names():
    resources = ResourceRequirements(
        requests={"ephemeral-storage": "9Gi", "hugepages-2Mi": "8Mi", "memory": "1Gi"}
    )
    result = pod_requests(pod(app(cpu="1", ephemeral_storage="2Gi"), resources=resources))
    assert result == PodRequests(1000, GI, 2 * GI, {"hugepages-2Mi": 8 * MI})


def test_pod_level_requests_without_a_supported_name_change_nothing():
    resources = requirements(ephemeral_storage="9Gi")
    assert pod_requests(pod(app(cpu="1"), resources=resources)) == PodRequests(1000)


def test_negative_requests_do_not_lower_what_a_node_must_have():
    wanted = pod(
        Container(
            resources=ResourceRequirements(
                requests={"cpu": "-1", "memory": "5", "example.com/gpu": "-2"}
            )
        )
    )
    assert filter_requests(wanted) == PodRequests(0, 5, 0, {"example.com/gpu": 0})
    assert accounted_requests(wanted).milli_cpu == -1000


# -- who asks decides what counts ----------------------------------------------------------------


def resizing(spec="500m", actual="800m", allocated="700m", infeasible=False, **more):
    conditions = [
        PodCondition(
            type="PodResizePending",
            reason="Infeasible" if infeasible else "Deferred",
            status="True",
        )
    ]
    return pod(
        app(cpu=spec),
        status=PodStatus(
            conditions=conditions,
            container_statuses=[
                ContainerStatus(
                    name="app",
                    resources=requirements(cpu=actual),
                    allocated_resources={"cpu": allocated},
                )
            ],
        ),
        **more,
    )


@pytest.mark.parametrize(
    ("wanted", "accounted", "filtered"),
    [
        pytest.param(resizing(), 800, 500, id="on a node the most of spec, actual and allocated"),
        pytest.param(resizing(spec="2"), 2000, 2000, id="a resize upwards counts at once"),
        pytest.param(
            resizing(spec="2", infeasible=True), 800, 2000, id="an infeasible one does not"
        ),
        pytest.param(
            pod(
                app(cpu="500m"),
                status=PodStatus(container_statuses=[ContainerStatus(name="app")]),
            ),
            500,
            500,
            id="a status that reports no resources changes nothing",
        ),
        pytest.param(
            pod(
                app(cpu="100m"),
                init=[app("i", cpu="300m"), sidecar(cpu="100m")],
                status=PodStatus(
                    init_container_statuses=[
                        ContainerStatus(name="i", resources=requirements(cpu="9")),
                        ContainerStatus(name="sidecar", resources=requirements(cpu="400m")),
                    ]
                ),
            ),
            (9000, 500),
            300,
            id="reported resources count for ordinary init containers only since 1.37",
        ),
        pytest.param(
            pod(
                app(cpu="1"),
                app("b", cpu="2"),
                status=PodStatus(
                    container_statuses=[
                        ContainerStatus(name="app", resources=requirements(cpu="2")),
                        ContainerStatus(name="b", resources=requirements(cpu="1")),
                    ]
                ),
            ),
            (3000, 4000),
            3000,
            id="containers that trade take the largest sum",
        ),
        pytest.param(
            pod(
                app(cpu="1"),
                status=PodStatus(
                    container_statuses=[
                        ContainerStatus(name="app", allocated_resources={"cpu": "3"})
                    ]
                ),
            ),
            (3000, 1000),
            1000,
            id="what is allocated counts without a report of what is used",
        ),
        pytest.param(
            pod(
                app(cpu="1"),
                app("b", cpu="2"),
                status=PodStatus(
                    conditions=[PodCondition(type="PodResizePending", reason="Infeasible")],
                    container_statuses=[
                        ContainerStatus(name="app", resources=requirements(cpu="1"))
                    ],
                ),
            ),
            (1000, 3000),
            3000,
            id="an infeasible resize counts only what is reported",
        ),
        pytest.param(
            pod(
                app(cpu="1"),
                status=PodStatus(
                    conditions=[PodCondition(type="PodResizePending", reason="Infeasible")]
                ),
            ),
            (0, 1000),
            1000,
            id="an infeasible resize without any report counts nothing",
        ),
    ],
)
def test_a_resize_in_progress_counts_on_the_node_only(wanted, accounted, filtered):
    largest_sum, sum_of_largest = accounted if isinstance(accounted, tuple) else (accounted,) * 2
    assert accounted_requests(wanted).milli_cpu == largest_sum
    assert accounted_requests(wanted, ACCOUNTED_BY_CONTAINER).milli_cpu == sum_of_largest
    assert pod_requests(wanted, RequestOptions(use_status=True)).milli_cpu == largest_sum
    assert filter_requests(wanted).milli_cpu == filtered


def pod_level_resizing(*, infeasible=False, actual=None, **status):
    return pod(
        app(cpu="100m"),
        resources=requirements(cpu="2", memory="1Gi"),
        status=PodStatus(
            conditions=[PodCondition(type="PodResizePending", reason="Infeasible")]
            if infeasible
            else None,
            resources=actual,
            **status,
        ),
    )


@pytest.mark.parametrize(
    ("wanted", "options", "expected"),
    [
        pytest.param(
            pod_level_resizing(actual=requirements(cpu="3"), allocated_resources={"cpu": "2500m"}),
            ACCOUNTED,
            (3000, GI),
            id="the most of spec, actual and allocated",
        ),
        pytest.param(
            pod_level_resizing(infeasible=True, actual=requirements(cpu="1")),
            ACCOUNTED_BY_CONTAINER,
            (1000, 0),
            id="1.36: when infeasible a name without a report becomes zero",
        ),
        pytest.param(
            pod_level_resizing(
                infeasible=True,
                actual=requirements(cpu="1"),
                container_statuses=[
                    ContainerStatus(name="app", resources=requirements(memory="64Mi"))
                ],
            ),
            ACCOUNTED,
            (1000, 64 * MI),
            id="when infeasible a name without a report is what the containers have",
        ),
        pytest.param(
            pod_level_resizing(
                actual=requirements(cpu="3", **{"hugepages-2Mi": "4Mi"}),
                allocated_resources={"cpu": "3"},
            ),
            ACCOUNTED,
            (3000, GI),
            id="names that only the report has count, too",
        ),
        pytest.param(
            pod_level_resizing(actual=None),
            ACCOUNTED,
            (2000, GI),
            id="without a report the spec counts",
        ),
        pytest.param(
            pod_level_resizing(actual=requirements(cpu="3")),
            RequestOptions(use_status=True),
            (2000, GI),
            id="without the option the spec counts",
        ),
        pytest.param(
            pod_level_resizing(actual=requirements(cpu="3")),
            RequestOptions(use_status=True, pod_level_status=True, skip_pod_level=True),
            (100, 0),
            id="skipped pod-level resources do not count at all",
        ),
    ],
)
def test_pod_level_resize(wanted, options, expected):
    result = pod_requests(wanted, options)
    assert (result.milli_cpu, result.memory) == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param(pod(app()), (100, 200 * MI), id="both defaults"),
        pytest.param(pod(app(), app("b")), (200, 400 * MI), id="defaults per container"),
        pytest.param(
            pod(app(cpu="750m", memory="64Mi"), app("b")), (850, 264 * MI), id="mixed containers"
        ),
        pytest.param(pod(app(cpu="0", memory="0")), (0, 0), id="an explicit zero stays zero"),
        pytest.param(pod(app(cpu="50m")), (50, 200 * MI), id="only what is missing"),
        pytest.param(
            pod(app(cpu="50m", memory="10Mi"), init=[app("i")]),
            (100, 200 * MI),
            id="init containers have defaults too",
        ),
        pytest.param(pod(), (0, 0), id="no containers, no defaults"),
        pytest.param(
            pod(app(), app("b"), resources=requirements(memory="1Gi")),
            (200, GI),
            id="with a pod-level request only the resource that is not named is defaulted",
        ),
        pytest.param(
            pod(app(), resources=requirements(cpu="1"), overhead={"memory": "5Mi"}),
            (1000, 5 * MI),
            id="overhead counts as naming a resource",
        ),
        pytest.param(
            pod(app(), resources=requirements(ephemeral_storage="1Gi")),
            (100, 200 * MI),
            id="unsupported pod-level names leave the defaults alone",
        ),
    ],
)
def test_nonzero_requests(wanted, expected):
    assert nonzero_requests(wanted) == expected


def test_without_the_pod_level_gate_pod_level_requests_are_not_seen():
    wanted = pod(app(), resources=requirements(memory="1Gi"))
    assert nonzero_requests(wanted, RequestOptions(skip_pod_level=True)) == (100, 200 * MI)


def test_scoring_ignores_pod_level_requests_that_the_filter_honours():
    wanted = pod(app(memory="10Mi"), resources=requirements(cpu="2", memory="1Gi"))
    scored, filtered = pod_requests(wanted, SCORED), filter_requests(wanted)
    assert (scored.milli_cpu, scored.memory) == (100, 10 * MI)
    assert (filtered.milli_cpu, filtered.memory) == (2000, GI)


def test_exact_amounts_tell_apart_what_rounding_would_not():
    before, after = pod(app(cpu="0.3m")), pod(app(cpu="0.2m"))
    assert pod_requests(before) == pod_requests(after)
    assert request_amounts(before) == {"cpu": 300_000}
    assert request_amounts(after) == {"cpu": 200_000}


def test_overflow_follows_the_way_quantities_were_written():
    one = pod(app(memory="10E"))
    two = pod(app(memory="9223372036854775807"), app("b", memory="1"))
    assert pod_requests(one).memory == 0
    assert pod_requests(two).memory == -(2**63)
    assert pod_requests(pod(app(memory="8Ei"), app("b"))).memory == MAX_INT64


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        pytest.param(
            pod(app(cpu="1K")),
            "pod ns/p: spec.containers[0].resources.requests[cpu]: '1K': "
            "unable to parse quantity's suffix",
            id="a lone container",
        ),
        pytest.param(
            pod(app(cpu="1"), init=[app("i", memory="x")]),
            "pod ns/p: spec.initContainers[0].resources.requests[memory]: 'x': "
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            id="an init container",
        ),
        pytest.param(
            pod(app(cpu="1"), overhead={"cpu": "Pi"}),
            "pod ns/p: spec.overhead[cpu]: 'Pi': unable to parse numeric part of quantity",
            id="overhead",
        ),
        pytest.param(
            pod(app(cpu="1"), resources=requirements(cpu="1e")),
            "pod ns/p: spec.resources.requests[cpu]: '1e': unable to parse quantity's suffix",
            id="pod-level requests",
        ),
        pytest.param(
            resizing(actual="9K"),
            "pod ns/p: status: unable to parse quantity's suffix",
            id="reported resources",
        ),
    ],
)
def test_a_malformed_quantity_names_pod_and_field(broken, message):
    with pytest.raises(QuantityError) as caught:
        accounted_requests(broken)
    assert str(caught.value) == message


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("cpu", ResourceClass.CPU, id="cpu"),
        pytest.param("memory", ResourceClass.MEMORY, id="memory"),
        pytest.param("ephemeral-storage", ResourceClass.EPHEMERAL_STORAGE, id="ephemeral storage"),
        pytest.param("pods", ResourceClass.PODS, id="pods"),
        pytest.param("example.com/gpu", ResourceClass.SCALAR, id="a vendor's device"),
        pytest.param("hugepages-2Mi", ResourceClass.SCALAR, id="huge pages"),
        pytest.param("attachable-volumes-csi-x", ResourceClass.SCALAR, id="attachable volumes"),
        pytest.param("kubernetes.io/batch", ResourceClass.SCALAR, id="a prefixed native name"),
        pytest.param("x.kubernetes.io/y", ResourceClass.SCALAR, id="a native subdomain"),
        pytest.param("storage", ResourceClass.IGNORED, id="storage"),
        pytest.param("foo", ResourceClass.IGNORED, id="an unknown plain name"),
        pytest.param("a/b/c", ResourceClass.IGNORED, id="two slashes"),
        pytest.param("requests.x/y", ResourceClass.IGNORED, id="a quota name"),
        pytest.param("UPPER.example/x", ResourceClass.IGNORED, id="an invalid domain"),
        pytest.param(f"e.com/{'x' * 64}", ResourceClass.IGNORED, id="a name part too long"),
        pytest.param(f"{'x' * 250}/y", ResourceClass.IGNORED, id="a domain too long once prefixed"),
    ],
)
def test_resource_names_fall_into_classes(name, expected):
    assert classify(name) is expected


def test_native_and_extended_names():
    assert is_native("cpu")
    assert is_native("x.kubernetes.io/y")
    assert not is_native("example.com/gpu")
    assert is_extended("example.com/gpu")
    assert not is_extended("x.kubernetes.io/y")
    assert not is_extended("requests.example.com/gpu")


# -- nodes ---------------------------------------------------------------------------------------


def test_node_allocatable_is_read_by_class():
    node = Node(
        metadata=ObjectMeta(name="n"),
        status=NodeStatus(
            capacity={"cpu": "64"},
            allocatable={
                "cpu": "3920m",
                "memory": "7.5Gi",
                "ephemeral-storage": "100Gi",
                "pods": "110",
                "example.com/gpu": "0",
                "hugepages-1Gi": "2Gi",
                "storage": "1",
            },
        ),
    )
    assert node_allocatable(node) == NodeAllocatable(
        3920,
        7680 * MI,
        100 * GI,
        {"example.com/gpu": 0, "hugepages-1Gi": 2 * GI},
        allowed_pods=110,
    )


def test_a_node_that_reports_nothing_offers_nothing():
    assert node_allocatable(Node()) == NodeAllocatable()


def test_a_malformed_allocatable_names_node_and_resource():
    node = Node(metadata=ObjectMeta(name="n"), status=NodeStatus(allocatable={"memory": "8GB"}))
    with pytest.raises(QuantityError, match=r"^node n: status\.allocatable\[memory\]: '8GB': "):
        node_allocatable(node)


# -- the fast path equals the slow path ----------------------------------------------------------

amounts = st.sampled_from(
    ["0", "1", "100m", "0.4m", "1.5Gi", "64Mi", "8Ei", "10E", "-1", "-1.1Ki", 3]
)
lists = st.dictionaries(
    st.sampled_from(["cpu", "memory", "ephemeral-storage", "example.com/gpu", "storage", "pods"]),
    amounts,
)
options = st.sampled_from([FILTERED, ACCOUNTED, ACCOUNTED_BY_CONTAINER, SCORED])


@given(lists, options)
def test_a_lone_container_gets_what_the_general_sum_gives(requests, option):
    lone = pod(Container(name="a", resources=ResourceRequirements(requests=requests)))
    # An overhead of nothing sends the same pod down the slow path.
    general = pod(*lone.spec.containers, overhead={"memory": "0", "cpu": "0"})
    assert pod_requests(lone, option) == pod_requests(general, option)


@given(st.lists(lists, max_size=4), st.lists(st.tuples(st.booleans(), lists), max_size=4))
def test_requests_are_the_peak_over_the_pods_life(apps, inits):
    """Replays the start of the pod container by container and takes the largest total."""
    wanted = pod(
        *(
            Container(name=f"a{i}", resources=ResourceRequirements(requests=r))
            for i, r in enumerate(apps)
        ),
        init=[
            Container(
                name=f"i{i}",
                resources=ResourceRequirements(requests=r),
                restart_policy="Always" if keeps_running else None,
            )
            for i, (keeps_running, r) in enumerate(inits)
        ],
    )
    names = {name for r in apps for name in r} | {name for _, r in inits for name in r}
    expected = {}
    for name in names:
        moments, running = [], []
        for keeps_running, requests in inits:
            using = [*running, requests]
            if any(name in r for r in using):
                moments.append(sum(nanos(r[name]) for r in using if name in r))
            if keeps_running:
                running.append(requests)
        using = [*running, *apps]
        if any(name in r for r in using):
            moments.append(sum(nanos(r[name]) for r in using if name in r))
        expected[name] = max(moments)
    assert request_amounts(wanted) == expected


# -- resized pods against the plain sums ---------------------------------------------------------

_sizes = st.none() | st.dictionaries(
    st.sampled_from(["cpu", "memory", "example.com/gpu"]), st.sampled_from(["0", "1", "2500m", "3"])
)
_requirements = st.none() | st.fixed_dictionaries(
    {}, optional={"requests": _sizes, "limits": _sizes}
)


def _without_none(fields):
    return {name: value for name, value in fields.items() if value is not None}


@st.composite
def resized_pods(draw):
    """Pods as JSON: every mixture of spec, allocated and actual, by container and as a whole."""
    spec = {"containers": [], "initContainers": []}
    status = {"containerStatuses": [], "initContainerStatuses": []}
    for kind, reports in (
        ("containers", "containerStatuses"),
        ("initContainers", "initContainerStatuses"),
    ):
        for number in range(draw(st.integers(kind == "containers", 2))):
            name = f"{kind[0]}{number}"
            asked = draw(_sizes)
            container = {"name": name, "resources": _without_none({"requests": asked})}
            if kind == "initContainers" and draw(st.booleans()):
                container["restartPolicy"] = "Always"
            spec[kind].append(container)
            if draw(st.booleans()):
                seen = {"resources": draw(_requirements), "allocatedResources": draw(_sizes)}
                status[reports].append({"name": name} | _without_none(seen))
    spec |= _without_none({"overhead": draw(_sizes), "resources": draw(_requirements)})
    status |= _without_none({"resources": draw(_requirements), "allocatedResources": draw(_sizes)})
    reason = draw(st.sampled_from([None, "Infeasible", "Deferred"]))
    if reason is not None:
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    return {"metadata": {"name": "p", "namespace": "ns"}, "spec": spec, "status": status}


@given(resized_pods(), st.booleans())
def test_a_resized_pod_takes_what_the_plain_sums_say(written, by_container):
    decoded = msgspec.convert(written, Pod)
    options = ACCOUNTED_BY_CONTAINER if by_container else ACCOUNTED
    ours = accounted_requests(decoded, options)
    theirs = twin.accounted(written, by_container=by_container)
    assert {n: a for n in theirs if (a := ours.get(n))} == {n: a for n, a in theirs.items() if a}
    assert set(ours.scalars) <= set(theirs)
    assert nonzero_requests(decoded, options) == twin.nonzero(written, by_container=by_container)


def test_requests_of_many_resources_are_not_kept():
    before = resources._amounts_as_written.cache_info().currsize
    for n in range(20):
        names = {f"example.com/r{n}-{each}": "2" for each in range(100)}
        container = Container(name="c", resources=ResourceRequirements(requests=names))
        found = pod_requests(Pod(spec=PodSpec(containers=[container])))
        assert found.scalars == dict.fromkeys(names, 2)
    assert resources._amounts_as_written.cache_info().currsize == before
