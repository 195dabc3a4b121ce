"""Core mode: every operation takes effect in the production core, and what is measured is what
happened.
"""

import time
from dataclasses import replace

import pytest

from kubesched.api.core_v1 import Pod
from kubesched.base.errors import ConfigError, KubeschedError
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.load import default_config
from kubesched.lab.benchmarking import core_cluster
from kubesched.lab.benchmarking.catalogue import SIZES, find, shipped
from kubesched.lab.benchmarking.core_cluster import CoreCluster
from kubesched.lab.benchmarking.core_mode import CoreOptions, run_core, with_core_decisions
from kubesched.lab.benchmarking.core_stage import CoreStage
from kubesched.lab.benchmarking.results import Contestant, DecisionCpu, Mode, RunResult
from kubesched.lab.benchmarking.scheduler_settings import configuration
from kubesched.lab.benchmarking.workload_files import load

ONCE = CoreOptions(repeats=1, warmup=0)
POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: "{name}-{{{{.Index}}}}", labels: {{app: {name}}}}}
spec:
  priority: {priority}
  {extra}
  containers: [{{name: a, image: b, resources: {{requests: {{cpu: "{cpu}"}}}}}}]
"""


@pytest.fixture(autouse=True)
def cpu_time(monkeypatch):
    """Only CPU time passes, so that a busy machine plays workloads as an idle one does."""
    monkeypatch.setattr(core_cluster, "perf_counter", time.thread_time)


@pytest.fixture
def played(tmp_path):
    """Plays operations on nodes with 4 CPU; pods are made from templates small, big, gated and
    urgent.
    """
    for name, cpu, priority, extra in (
        ("small", "1", 0, "terminationGracePeriodSeconds: 0"),
        ("big", "100", 5, ""),
        ("gated", "1", 0, "schedulingGates: [{name: wait}]"),
        ("urgent", "4", 10, ""),
        ("free", "1", 0, "schedulingGates: []"),
        ("kept", "1", 0, ""),
    ):
        text = POD.format(name=name, cpu=cpu, priority=priority, extra=extra)
        if name == "free":
            text = text.replace("free-", "gated-").replace("app: free", "app: gated")
        if name == "kept":
            text = text.replace("labels:", "finalizers: [example.com/keep], labels:")
        (tmp_path / f"{name}.yaml").write_text(text)

    def play(*operations, nodes=2, config="", options=ONCE):
        path = tmp_path / "workloads.yaml"
        path.write_text(
            f"- name: Case\n  workloads: [{{name: one}}]\n{config}  workloadTemplate:\n"
            f"  - {{opcode: createNodes, count: {nodes}}}\n"
            + "".join(f"  - {{opcode: {operation}}}\n" for operation in operations)
        )
        (workload,) = load(path)
        return run_core(workload, options)

    return play


def pods(name, count, *more, namespace="a"):
    words = ", ".join((f"podTemplatePath: {name}.yaml", f"namespace: {namespace}", *more))
    return f"createPods, count: {count}, {words}"


MEASURED = "collectMetrics: true"
LATER = "skipWaitToCompletion: true"


def test_what_is_measured_are_the_pods_of_the_operation(played):
    (result,) = played(pods("small", 3), pods("small", 4, MEASURED, namespace="b"))
    assert (result.workload, result.mode, result.nodes) == ("Case/one", Mode.CORE, 2)
    assert (result.pods, result.attempts, result.unschedulable_attempts) == (4, 4, 0)
    assert result.pods_per_s > 0
    assert result.decisions_per_s > result.pods_per_s
    assert result.scheduler.cpu_s == result.seconds > 0


@pytest.mark.slow
def test_repetitions_are_numbered_and_warm_ups_left_out(played):
    results = played(pods("small", 1, MEASURED), options=CoreOptions(repeats=2, warmup=1))
    assert [result.repeat for result in results] == [1, 2]


def test_without_classes_the_contestant_says_so(played):
    options = CoreOptions(repeats=1, warmup=0, classes=False)
    (result,) = played(pods("small", 1, MEASURED), options=options)
    assert result.contestant == Contestant.KUBESCHED_NO_CLASSES


def test_preemption_takes_its_second_attempt(played):
    (result,) = played(pods("small", 4), pods("urgent", 1, MEASURED, namespace="b"), nodes=1)
    assert (result.pods, result.attempts, result.unschedulable_attempts) == (1, 2, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "expected"), [(0.0, ["comes"] * 5 + ["bound"] * 5), (0.01, ["comes", "bound"] * 5)]
)
def test_measured_pods_come_at_a_rate_of_the_runs_own_time(monkeypatch, rate, expected):
    """All at once, or each after the one before it has evicted others and taken its place."""
    seen = []

    def noting(what, of, method):
        plain = getattr(of, method)

        def note(self, obj):
            if isinstance(obj, Pod) and obj.metadata.name.startswith("urgent-"):
                seen.append(what)
            plain(self, obj)

        monkeypatch.setattr(of, method, note)

    noting("comes", CoreCluster, "add")
    noting("bound", CoreStage, "_bound")
    (workload,) = find(["Preemption/tiny"])
    (result,) = run_core(workload, replace(ONCE, pods_per_s=rate))
    assert (result.pods, result.attempts, result.unschedulable_attempts) == (5, 10, 5)
    assert seen == expected


def test_deletions_make_room_at_their_rate_of_the_runs_own_time(played):
    (result,) = played(
        pods("small", 4),
        "startCollectingMetrics, namespaces: [b], labelSelector: {app: small}",
        pods("small", 2, LATER, namespace="b"),
        "barrier, stageRequirement: Attempted",
        "deletePods, namespace: a, deletePodsPerSecond: 10, skipWaitToCompletion: true",
        "barrier, namespaces: [b]",
        "stopCollectingMetrics",
        nodes=1,
    )
    assert result.pods == 2
    assert result.unschedulable_attempts >= 2


def test_deleting_at_once_needs_no_waiting(played):
    (result,) = played(
        pods("small", 4),
        "deletePods, namespace: a",
        pods("small", 4, MEASURED, namespace="b"),
        nodes=1,
    )
    assert (result.pods, result.attempts) == (4, 4)


def test_deletion_is_waited_for_unless_told_otherwise(played):
    (result,) = played(
        pods("small", 4),
        "deletePods, namespace: a, deletePodsPerSecond: 1",
        pods("small", 4, MEASURED, namespace="b"),
        nodes=1,
    )
    assert (result.pods, result.attempts) == (4, 4)


def test_a_finalizer_keeps_a_deleted_pod_from_being_scheduled_and_from_going(played):
    (result,) = played(
        pods("kept", 2, LATER),
        "deletePods, namespace: a",
        pods("small", 4, MEASURED, namespace="b"),
        nodes=1,
    )
    assert result.pods == 4


def test_an_update_that_lifts_a_gate_lets_pods_be_scheduled(played):
    (result,) = played(
        "startCollectingMetrics, name: lifted, namespaces: [a]",
        pods("gated", 2, LATER),
        "barrier, stageRequirement: Attempted",
        "updateAny, templatePath: free.yaml, namespace: a, count: 2, updatePerSecond: 100",
        "barrier",
        "stopCollectingMetrics",
    )
    assert result.workload == "Case/one/lifted"
    assert (result.pods, result.attempts) == (2, 2)


def test_churn_goes_on_beside_the_measured_pods_and_is_not_counted_with_them(played):
    # Big pods go first. If they came faster than a busy machine tries them, no small one would ever
    # be tried.
    (result,) = played(
        "churn, mode: create, templatePaths: [big.yaml], intervalMilliseconds: 20",
        pods("small", 60, MEASURED, namespace="b"),
        nodes=15,
    )
    assert result.pods == 60
    assert result.unschedulable_attempts > 1


def test_pods_that_are_starved_by_hopeless_ones_end_the_run(played, monkeypatch):
    monkeypatch.setattr("kubesched.lab.benchmarking.core_stage.FRUITLESS", 50)
    with pytest.raises(KubeschedError, match=r"4 pods of b cannot be scheduled; .* never tried"):
        played(
            "churn, mode: create, templatePaths: [big.yaml], intervalMilliseconds: 1",
            pods("small", 4, MEASURED, namespace="b"),
        )


def test_churn_that_recreates_removes_what_it_made(played):
    (result,) = played(
        "churn, mode: recreate, number: 1, templatePaths: [small.yaml], intervalMilliseconds: 10",
        "sleep, duration: 95ms",
        pods("small", 3, MEASURED, namespace="b"),
        nodes=1,
    )
    assert result.pods == 3, "of five pods that came, at most one is still there"


def test_a_steady_state_replaces_pods_for_its_duration(played):
    (result,) = played(pods("small", 2, MEASURED, "steadyState: true", "duration: 300ms"), nodes=1)
    assert result.pods > 4, "there is room for four"


def test_pods_that_cannot_be_scheduled_end_the_run_with_the_reason(played):
    with pytest.raises(KubeschedError) as caught:
        played(pods("small", 1), pods("big", 2, MEASURED, namespace="b"))
    text = str(caught.value)
    assert text.startswith("Case/one: 2 pods of b cannot be scheduled; b/big-0: 0/2 nodes")
    assert "Insufficient cpu" in text


def test_gated_pods_that_stay_gated_end_the_run_too(played):
    with pytest.raises(KubeschedError, match="1 pods of a cannot be scheduled"):
        played(pods("gated", 1, MEASURED))


def test_a_binding_that_waits_for_a_volume_that_stays_unbound_ends_the_run(
    played, monkeypatch, tmp_path
):
    (tmp_path / "class.yaml").write_text(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: later}\n"
        "provisioner: kubernetes.io/no-provisioner\nvolumeBindingMode: WaitForFirstConsumer\n"
    )
    (tmp_path / "volume.yaml").write_text(
        "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: disk}\n"
        "spec: {storageClassName: later, accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, "
        "hostPath: {path: /disk}}\nstatus: {phase: Available}\n"
    )
    (tmp_path / "claim.yaml").write_text(
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: disk}\n"
        "spec: {storageClassName: later, accessModes: [ReadWriteOnce], "
        "resources: {requests: {storage: 1Gi}}}\n"
    )
    (tmp_path / "waiting.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n"
        "  containers: [{name: a, image: b}]\n"
        "  volumes: [{name: v, persistentVolumeClaim: {claimName: disk}}]\n"
    )
    with pytest.raises(KubeschedError, match="a binding waits for what does not happen"):
        played(
            "createAny, templatePath: class.yaml",
            "createAny, templatePath: volume.yaml",
            "createAny, templatePath: claim.yaml, namespace: a",
            pods("waiting", 1, MEASURED),
        )


def test_a_workload_that_measures_nothing_is_refused(played):
    with pytest.raises(KubeschedError, match="no operation collects metrics"):
        played(pods("small", 1))


def test_measuring_that_was_never_begun_cannot_be_ended(played):
    with pytest.raises(KubeschedError, match="stopCollectingMetrics without start"):
        played("stopCollectingMetrics")


def test_workloads_that_cannot_be_played_are_refused_by_name(played):
    gates = "  featureGates: {DRAListTypeAttributes: true}\n"
    with pytest.raises(KubeschedError, match="Case/one: DRAListTypeAttributes: device attributes"):
        played(pods("small", 1, MEASURED), config=gates)


def test_members_of_a_pod_group_are_placed_together(played, tmp_path):
    (tmp_path / "group.yaml").write_text(
        "apiVersion: scheduling.k8s.io/v1beta1\nkind: PodGroup\nmetadata: {name: 'g-{{.Index}}'}\n"
        "spec: {schedulingPolicy: {gang: {minCount: 3}}}\n"
    )
    text = (tmp_path / "small.yaml").read_text()
    group = 'spec:\n  schedulingGroup: {podGroupName: "g-{{DivideInt .Index 3}}"}\n'
    assert text.count("spec:\n") == 1
    (tmp_path / "member.yaml").write_text(text.replace("spec:\n", group))
    (result,) = played(
        "createPodGroups, count: 2, namespace: a, templatePath: group.yaml",
        pods("member", 6, MEASURED),
        config="  featureGates: {GenericWorkload: true}\n",
        options=replace(ONCE, times_cycles=True),
    )
    assert (result.pods, result.attempts) == (6, 2)
    assert result.decision_cpu.us_per_pod > 0


DEVICE_CLASS = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
"""
DEVICES = "{devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}"
CLAIM_TEMPLATE = f"""\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: one}}
spec: {{spec: {DEVICES}}}
"""
CLAIM = f"""\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: "claim-{{{{.Index}}}}"}}
spec: {DEVICES}
"""
DRIVER = 'createResourceDriver, driverName: gpu.example.com, nodes: "*", maxClaimsPerNode: 2'


def any_of(template, namespace="", count=1):
    where = f", namespace: {namespace}" if namespace else ""
    return f"createAny, templatePath: {template}.yaml, count: {count}{where}"


@pytest.fixture
def with_devices(played, tmp_path):
    """Templates of a device class, of claims, and of pods that want a device of their own or a
    claim that exists.
    """
    for name, text in (("class", DEVICE_CLASS), ("template", CLAIM_TEMPLATE), ("claim", CLAIM)):
        (tmp_path / f"{name}.yaml").write_text(text)
    for name, source in (
        ("own", "resourceClaimTemplateName: one"),
        ("given", "resourceClaimName: 'claim-{{.Index}}'"),
    ):
        extra = f"resourceClaims: [{{name: gpu, {source}}}]"
        (tmp_path / f"{name}.yaml").write_text(
            POD.format(name=name, cpu="100m", priority=0, extra=extra)
        )
    return played


def test_claims_are_made_from_templates_and_devices_are_found(with_devices):
    (result,) = with_devices(
        DRIVER, any_of("class"), any_of("template", "b"), pods("own", 4, MEASURED, namespace="b")
    )
    assert (result.pods, result.attempts) == (4, 4)
    with pytest.raises(KubeschedError, match="cannot allocate all claims"):
        with_devices(
            DRIVER,
            any_of("class"),
            any_of("template", "b"),
            pods("own", 5, MEASURED, namespace="b"),
        )


def test_claims_of_replaced_pods_are_released(with_devices):
    (result,) = with_devices(
        DRIVER,
        any_of("class"),
        any_of("template", "b"),
        pods("own", 4, MEASURED, "steadyState: true, duration: 100ms", namespace="b"),
    )
    assert result.pods > 8


def test_claims_are_allocated_beforehand(with_devices):
    (result,) = with_devices(
        DRIVER,
        any_of("class"),
        any_of("claim", "b", 4),
        "allocResourceClaims, namespace: b",
        pods("given", 4, MEASURED, namespace="b"),
    )
    assert (result.pods, result.attempts) == (4, 4)


def test_a_configuration_file_is_used(played, tmp_path):
    (tmp_path / "config.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: another-scheduler}]\n"
    )
    with pytest.raises(KubeschedError, match="never tried"):
        played(pods("small", 1, MEASURED), config="  schedulerConfigPath: config.yaml\n")


def extender(folder, managed=""):
    (folder / "config.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"extenders: [{{urlPrefix: 'http://localhost:1/', filterVerb: filter{managed}}}]\n"
    )
    return "  schedulerConfigPath: config.yaml\n"


def test_extenders_for_all_pods_are_refused_as_there_is_no_network_here(played, tmp_path):
    with pytest.raises(KubeschedError, match="extenders"):
        played(pods("small", 1, MEASURED), config=extender(tmp_path))


def test_an_extender_for_other_pods_is_never_asked(played, tmp_path):
    config = extender(tmp_path, ", managedResources: [{name: example.com/gpu}]")
    (result,) = played(pods("small", 2, MEASURED), config=config)
    assert (result.pods, result.unschedulable_attempts) == (2, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("given", "used"), [(None, 30), (100, 100)])
def test_another_percentage_replaces_the_workloads(given, used):
    (workload,) = find(["SampledNodes/tiny"])
    assert configuration(workload, DEFAULT_GATES, given).percentage_of_nodes_to_score == used
    (result,) = run_core(workload, replace(ONCE, percentage_of_nodes_to_score=given))
    assert result.pods == workload.params["measurePods"]


@pytest.mark.slow
def test_decisions_of_core_mode_complete_end_to_end_results_of_ours():
    (workload,) = find(["Basic/tiny"])
    ours, theirs = (
        RunResult(
            workload=workload.full_name,
            contestant=contestant,
            mode=Mode.END_TO_END,
            repeat=1,
            decision_cpu=DecisionCpu(us_per_pod=9.0, samples=7),
        )
        for contestant in (Contestant.KUBESCHED, Contestant.KUBE_SCHEDULER)
    )
    completed, unchanged = with_core_decisions([ours, theirs], workload, ONCE)
    assert unchanged is theirs
    assert completed.decision_cpu.samples == 0
    (plain,) = run_core(workload, replace(ONCE, times_cycles=True))
    assert 0 < plain.decision_cpu.us_per_pod < plain.scheduler.cpu_ms_per_pod * 1000
    (untimed,) = run_core(workload, ONCE)
    assert untimed.decision_cpu is None


def test_kinds_no_scheduler_knows_are_refused(played, tmp_path):
    (tmp_path / "odd.yaml").write_text("apiVersion: example.com/v1\nkind: Odd\nmetadata: {}\n")
    with pytest.raises(KubeschedError, match=r"kind Odd of example\.com/v1"):
        played("createAny, templatePath: odd.yaml", pods("small", 1, MEASURED))


@pytest.mark.slow
def test_the_same_seed_gives_the_same_placements(tmp_path):
    def placements():
        from kubesched.api.core_v1 import Pod

        cluster = None
        results = {}

        class Watched(CoreCluster):
            def __init__(self, *args, **kwargs):
                nonlocal cluster
                super().__init__(*args, **kwargs)
                cluster = self

        run_core(find(["MixedTemplates/tiny"])[0], replace(ONCE, make_cluster=Watched))
        for pod in cluster.objects(Pod):
            results[pod.metadata.name] = pod.spec.node_name
        return results

    first = placements()
    assert len(set(first.values())) > 1
    assert placements() == first


def test_what_exists_cannot_be_created_again():
    cluster = CoreCluster(default_config(DEFAULT_GATES), DEFAULT_GATES)
    node = cluster.made({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    cluster.add(node)
    with pytest.raises(KubeschedError, match="Node n exists already"):
        cluster.add(node)


def test_time_runs_inside_work_jumps_outside_and_never_goes_back():
    cluster = CoreCluster(default_config(DEFAULT_GATES), DEFAULT_GATES)
    clock = cluster.paced
    start = clock.monotonic()
    assert clock.monotonic() == start
    clock.enter()
    inside = clock.monotonic()
    clock.leave(0.5)
    after = clock.monotonic()
    assert start <= inside < after
    assert after >= start + 0.5
    cluster.jump_to(start)
    assert clock.monotonic() == after


# -- our own workloads -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("classes", [True, False], ids=["with classes", "without classes"])
@pytest.mark.parametrize(
    "workload",
    [pytest.param(item, id=item.full_name) for item in shipped() if item.name == "tiny"],
)
def test_our_workloads_schedule_every_pod_they_measure(workload, classes):
    (result,) = run_core(workload, CoreOptions(repeats=1, warmup=0, classes=classes))
    measured = workload.params.get("measurePods") or workload.params.get("smallPods")
    if measured is not None:
        assert result.pods == measured
    assert result.pods > 0


def test_every_case_comes_in_sizes_with_descriptions():
    sizes = {}
    for item in shipped():
        assert item.case.description, item.full_name
        assert not item.not_supported
        sizes.setdefault(item.case.name, []).append(item.name)
    assert len(sizes) >= 15
    for case, names in sizes.items():
        assert names[0] == "tiny", case
        assert set(names) <= {*SIZES, "gate"}, case


@pytest.mark.parametrize(
    ("wanted", "options", "expected"),
    [
        pytest.param(["Basic"], {}, ["Basic/small"], id="a case in the default size"),
        pytest.param(["Basic/large"], {}, ["Basic/large"], id="a workload"),
        pytest.param(
            ["Basic", "Gated"], {"sizes": ["tiny"]}, ["Basic/tiny", "Gated/tiny"], id="a size"
        ),
        pytest.param(["Bas*"], {"labels": ["ci"]}, ["Basic/tiny"], id="a label"),
        pytest.param(
            ["Preemption"],
            {"labels": ["-long", "-ci"]},
            ["Preemption/small", "Preemption/medium"],
            id="labels to be absent",
        ),
    ],
)
def test_workloads_are_found_by_name_size_and_label(wanted, options, expected):
    assert [item.full_name for item in find(wanted, **options)] == expected


def test_without_a_name_all_cases_are_meant():
    assert {item.case.name for item in find([])} >= {"Basic", "Churn", "BoundVolumes"}


def test_a_name_that_fits_nothing_is_an_error():
    with pytest.raises(KubeschedError, match="no workload 'Basics'"):
        find(["Basics"])
    with pytest.raises(KubeschedError, match="no workload fits"):
        find(["Basic"], sizes=["gigantic"])


def test_parameters_are_replaced_where_a_workload_has_them():
    basic, nominations = find(["Basic/tiny", "Nominations/tiny"], params={"rivals": 2, "nodes": 7})
    assert (basic.node_count, nominations.node_count) == (7, 9)


def test_a_parameter_that_no_workload_has_is_an_error():
    with pytest.raises(KubeschedError, match="parameter pods; there are initPods, measurePods"):
        find(["Basic/tiny"], params={"pods": 2})


def test_a_file_that_is_wrong_is_an_error(tmp_path):
    (tmp_path / "x.yaml").write_text("- {}\n")
    with pytest.raises(ConfigError):
        find([str(tmp_path / "x.yaml")])
