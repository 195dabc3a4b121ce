"""Workload files: every operation read, parameters filled in, and every mistake named with field
and line.
"""

from pathlib import Path

import pytest

from kubesched.base.errors import ConfigError
from kubesched.lab.benchmarking import operations as ops
from kubesched.lab.benchmarking.scheduler_settings import feature_gates, gates_to_set
from kubesched.lab.benchmarking.workload_files import load

HEAD = (
    "- name: Case\n  workloads:\n  - name: one\n"
    "    params: {nodes: 5, time: 1s, steady: true}\n  workloadTemplate:\n"
)


@pytest.fixture
def read(tmp_path):
    """Loads a file with the given operations, and the given lines at the level of the case."""
    (tmp_path / "pod.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n")
    (tmp_path / "node.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: a}\n")

    def load_text(*operations, case=""):
        path = tmp_path / "workloads.yaml"
        path.write_text(HEAD + "".join(f"  - {operation}\n" for operation in operations) + case)
        return load(path)

    return load_text


def only(workloads):
    ((op,),) = [workload.ops for workload in workloads]
    return op


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "{opcode: createNodes, countParam: $nodes}", ops.CreateNodes(count=5), id="createNodes"
        ),
        pytest.param(
            "{opcode: createNodes, count: 2, labelNodePrepareStrategy: {labelKey: z, labelValues: "
            "[a]}}",
            ops.CreateNodes(
                count=2,
                label_node_prepare_strategy=ops.LabelNodePrepareStrategy(
                    label_key="z", label_values=("a",)
                ),
            ),
            id="createNodes with labels in turn",
        ),
        pytest.param(
            "{opcode: createNodes, count: 2, uniqueNodeLabelStrategy: {labelKey: z}}",
            ops.CreateNodes(
                count=2, unique_node_label_strategy=ops.UniqueNodeLabelStrategy(label_key="z")
            ),
            id="createNodes with a label of their own",
        ),
        pytest.param(
            "{opcode: createPods, count: 3, countMultiplierParam: $nodes, signatureBatchSize: 2}",
            ops.CreatePods(count=15, namespace="namespace-0", signature_batch_size=2),
            id="createPods of groups, with labels",
        ),
        pytest.param(
            "{opcode: createNamespaces, prefix: team, count: 3}",
            ops.CreateNamespaces(prefix="team", count=3),
            id="createNamespaces",
        ),
        pytest.param(
            "{opcode: createPods, countParam: $nodes, collectMetrics: true}",
            ops.CreatePods(count=5, namespace="namespace-0", collect_metrics=True),
            id="createPods in a namespace named after the operation",
        ),
        pytest.param(
            "{opcode: createPods, count: 1, namespace: a, steadyStateParam: $steady, "
            "durationParam: $time}",
            ops.CreatePods(count=1, namespace="a", steady_state=True, duration=1.0),
            id="createPods in a steady state",
        ),
        pytest.param(
            "{opcode: createPodSets, countParam: $nodes, namespacePrefix: a, createPodsOp: "
            "{opcode: createPods, countParam: $nodes}}",
            ops.CreatePodSets(
                count=5, namespace_prefix="a", create_pods_op=ops.CreatePods(count=5)
            ),
            id="createPodSets",
        ),
        pytest.param(
            "{opcode: deletePods, namespace: a, deletePodsPerSecond: 50, labelSelector: {b: c}}",
            ops.DeletePods(namespace="a", delete_pods_per_second=50, label_selector={"b": "c"}),
            id="deletePods",
        ),
        pytest.param(
            "{opcode: barrier, stageRequirement: Attempted, namespaces: [a]}",
            ops.Barrier(stage_requirement="Attempted", namespaces=("a",)),
            id="barrier",
        ),
        pytest.param("{opcode: barrier}", ops.Barrier(), id="barrier for everything"),
        pytest.param("{opcode: sleep, duration: 100ms}", ops.Sleep(duration=0.1), id="sleep"),
        pytest.param("{opcode: sleep, durationParam: $time}", ops.Sleep(duration=1.0), id="$time"),
        pytest.param(
            "{opcode: startCollectingMetrics, name: x, namespaces: [a], labelSelector: {b: c}}",
            ops.StartCollectingMetrics(name="x", namespaces=("a",), label_selector={"b": "c"}),
            id="startCollectingMetrics",
        ),
        pytest.param(
            "{opcode: stopCollectingMetrics}", ops.StopCollectingMetrics(), id="stopCollecting"
        ),
    ],
)
def test_operations_are_read_with_their_parameters_filled_in(read, text, expected):
    assert only(read(text)) == expected


def test_operations_with_templates_know_them_by_absolute_path(read, tmp_path):
    pod = str((tmp_path / "pod.yaml").resolve())
    (workload,) = read(
        "{opcode: churn, mode: recreate, number: 1, templatePaths: [pod.yaml]}",
        "{opcode: createAny, templatePath: pod.yaml, namespace: a, templateParams: {x: $nodes}}",
        "{opcode: createPodGroups, templatePath: pod.yaml, namespace: a, count: 3}",
        "{opcode: updateAny, templatePath: pod.yaml, namespace: a, updatePerSecond: 9}",
        "{opcode: createPods, count: 1}",
        "{opcode: createNodes, count: 1, nodeTemplatePath: node.yaml}",
        case="  defaultPodTemplatePath: pod.yaml\n",
    )
    churn, create, groups, update, pods, nodes = workload.ops
    assert churn == ops.Churn(
        mode="recreate", number=1, template_paths=(pod,), namespace="namespace-0"
    )
    assert create == ops.CreateAny(template_path=pod, namespace="a", template_params={"x": 5})
    assert groups == ops.CreatePodGroups(template_path=pod, namespace="a", count=3)
    assert update == ops.UpdateAny(template_path=pod, namespace="a", update_per_second=9)
    assert pods.pod_template_path == pod
    assert Path(nodes.node_template_path).name == "node.yaml"


@pytest.mark.parametrize(
    ("text", "path", "complaint"),
    [
        pytest.param("{opcode: createNode}", ".opcode", "unknown opcode 'createNode'", id="opcode"),
        pytest.param("{count: 1}", ".opcode", "opcode is missing", id="no opcode"),
        pytest.param("barrier", "", "an operation is a map", id="no map"),
        pytest.param("{opcode: createNodes}", ".count", "Required value", id="no count"),
        pytest.param(
            "{opcode: createNodes, count: many}", ".count", "expected an integer", id="wrong type"
        ),
        pytest.param("{opcode: createNodes, count: -1}", "", "count is negative", id="negative"),
        pytest.param(
            "{opcode: createNodes, count: 1, nodeTemplate: x}",
            ".nodeTemplate",
            'unknown field "nodeTemplate"; did you mean "nodeTemplatePath"?',
            id="unknown field",
        ),
        pytest.param(
            "{opcode: createNodes, countParam: $pods}",
            ".countParam",
            "workload 'one' gives $pods no value; it has $nodes, $time, $steady",
            id="parameter without value",
        ),
        pytest.param(
            "{opcode: createNodes, countParam: nodes}",
            ".countParam",
            "'nodes' is no parameter: it begins with $",
            id="parameter without dollar",
        ),
        pytest.param(
            "{opcode: createNodes, count: 1, nodeTemplatePath: gone.yaml}",
            ".nodeTemplatePath",
            "gone.yaml: no such file",
            id="missing template",
        ),
        pytest.param(
            "{opcode: churn, mode: shuffle, templatePaths: [pod.yaml]}", "", "mode", id="churn mode"
        ),
        pytest.param(
            "{opcode: churn, mode: recreate, templatePaths: [pod.yaml]}",
            "",
            "needs a number above 0",
            id="recreate without number",
        ),
        pytest.param(
            "{opcode: churn, mode: create, templatePaths: []}", "", "is empty", id="empty churn"
        ),
        pytest.param(
            "{opcode: barrier, stageRequirement: Started}", "", "stageRequirement", id="stage"
        ),
        pytest.param(
            "{opcode: startCollectingMetrics, namespaces: []}", "", "is empty", id="no namespaces"
        ),
        pytest.param(
            "{opcode: createPods, count: 1, collectMetrics: true, skipWaitToCompletion: true}",
            "",
            "exclude each other",
            id="measuring without waiting",
        ),
        pytest.param(
            "{opcode: createPods, count: 1, steadyState: true}", "", "duration", id="steady"
        ),
        pytest.param(
            "{opcode: createPods, count: 1, persistentVolumeTemplatePath: pod.yaml}",
            "",
            "needs persistentVolumeClaimTemplatePath",
            id="volume without claim",
        ),
        pytest.param(
            "{opcode: createNodes, count: 1, labelNodePrepareStrategy: {labelKey: a}}",
            "",
            "needs labelKey and labelValues",
            id="label without values",
        ),
        pytest.param("{opcode: sleep, duration: soon}", ".duration", "duration", id="duration"),
    ],
)
def test_mistakes_are_named_with_file_field_and_line(read, text, path, complaint):
    with pytest.raises(ConfigError) as caught:
        read("{opcode: barrier}", text)
    (problem,) = caught.value.problems
    assert problem.path == f"[0].workloadTemplate[1]{path}"
    assert complaint in problem.message
    assert problem.line == 7
    assert caught.value.source.endswith("workloads.yaml")


def test_all_mistakes_are_reported_at_once_and_each_only_once(read):
    with pytest.raises(ConfigError) as caught:
        read("{opcode: a}", "{opcode: b}", case="  unknown: 1\n- name: Other\n  workloads: []\n")
    paths = [problem.path for problem in caught.value.problems]
    assert paths == ["[0].unknown", "[1].workloadTemplate"]
    with pytest.raises(ConfigError) as caught:
        read("{opcode: a}", "{opcode: b}")
    assert len(caught.value.problems) == 2


def test_a_file_is_a_list(tmp_path):
    path = tmp_path / "workloads.yaml"
    path.write_text("name: Case\n")
    with pytest.raises(ConfigError, match="a workload file is a list of test cases"):
        load(path)


def test_workloads_have_the_labels_and_gates_of_their_case_and_their_own(tmp_path):
    path = tmp_path / "workloads.yaml"
    path.write_text(
        "- name: Case\n  labels: [a]\n  featureGates: {PodLevelResources: false}\n"
        "  workloadTemplate: [{opcode: createNodes, countParam: $some}, {opcode: createPods, "
        "countParam: $some}]\n"
        "  workloads:\n"
        "  - {name: first, labels: [b], threshold: 40, params: {some: 1}}\n"
        "  - {name: second, featureGates: {NodeDeclaredFeatures: false}, threshold: {p: 5, q: 3}, "
        "params: {some: 2}}\n"
    )
    first, second = load(path)
    assert (first.full_name, first.labels, first.threshold) == ("Case/first", ("a", "b"), 40.0)
    assert (second.full_name, second.labels, second.threshold) == ("Case/second", ("a",), 3.0)
    assert second.feature_gates == {"PodLevelResources": False, "NodeDeclaredFeatures": False}
    assert (second.node_count, second.pod_count) == (2, 2)
    gates, notes = feature_gates(second)
    assert not gates.PodLevelResources
    assert gates.NodeDeclaredFeatures
    assert notes[0] == "NodeDeclaredFeatures=false is ignored: locked in Kubernetes 1.37"
    assert (
        "InPlacePodLevelResourcesVerticalScaling is off: it depends on PodLevelResources, "
        "which the workload turns off"
    ) in notes


def test_a_gate_that_kubernetes_does_not_know_is_left_out_with_a_note(tmp_path):
    path = tmp_path / "workloads.yaml"
    path.write_text(
        "- name: Case\n  featureGates: {FutureThing: true}\n  workloadTemplate: []\n"
        "  workloads: [{name: x}]\n"
    )
    (workload,) = load(path)
    assert gates_to_set(workload) == (
        {},
        ("FutureThing is ignored: Kubernetes 1.37 has no such feature gate",),
    )


def test_declared_features_come_from_a_parameter_that_no_operation_names(tmp_path):
    path = tmp_path / "workloads.yaml"
    path.write_text(
        "- name: Case\n  workloadTemplate: [{opcode: createNodes, count: 1}]\n"
        "  workloads: [{name: x, params: {numNodeDeclaredFeatures: 2}}]\n"
    )
    (workload,) = load(path)
    (node,) = workload.ops[0].manifests(ops.Names())
    assert node["status"]["declaredFeatures"] == ["feature-0", "feature-1"]


def test_a_workload_without_a_parameter_that_others_have_cannot_be_run(tmp_path):
    path = tmp_path / "workloads.yaml"
    path.write_text(
        "- name: Case\n  workloadTemplate: [{opcode: createNodes, countParam: $some}]\n"
        "  workloads: [{name: first, params: {some: 1}}, {name: second, params: {other: 1}}]\n"
    )
    first, second = load(path)
    assert not first.not_supported
    assert second.not_supported == (
        "createNodes: workload 'second' gives $some no value; it has $other"
    )


def test_pods_in_a_row_share_a_signature(read):
    op = only(read("{opcode: createPods, count: 5, signatureBatchSize: 2}"))
    labels = [pod["metadata"]["labels"] for pod in op.manifests(ops.Names())]
    assert [it["signature"] for it in labels] == [f"signature-label-{n}" for n in (0, 0, 1, 1, 2)]


def test_template_parameters_may_have_defaults_in_yaml(read):
    op = only(
        read(
            "{opcode: createAny, templatePath: pod.yaml, templateParams: "
            "{a: $nodes|2, b: $more|2, c: '$list|[x]', d: $nothing|}}"
        )
    )
    assert op.template_params == {"a": 5, "b": 2, "c": ["x"], "d": None}


def test_a_workload_of_a_feature_that_is_not_implemented_cannot_be_run(tmp_path):
    path = tmp_path / "workloads.yaml"
    path.write_text(
        "- name: Case\n  featureGates: {DRAListTypeAttributes: true}\n"
        "  workloadTemplate: [{opcode: createNodes, count: 1}]\n"
        "  workloads: [{name: one}, {name: two, featureGates: {DRAListTypeAttributes: false}}]\n"
    )
    one, two = load(path)
    assert one.not_supported == (
        "DRAListTypeAttributes: device attributes with several values are not implemented"
    )
    assert not two.not_supported
