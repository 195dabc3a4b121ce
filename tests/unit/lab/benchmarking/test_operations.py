"""Objects that operations make: names, labels, namespaces, volumes; the same every time."""

import pytest

from kubesched.lab.benchmarking import operations as ops


@pytest.fixture
def template(tmp_path):
    def write(text):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.yaml"
        path.write_text(text)
        return str(path)

    return write


POD = "apiVersion: v1\nkind: Pod\nmetadata: {generateName: web-}\nspec: {containers: []}\n"
VOLUME = "apiVersion: v1\nkind: PersistentVolume\nspec: {csi: {driver: disk.example}}\n"
CLAIM = "apiVersion: v1\nkind: PersistentVolumeClaim\nspec: {accessModes: [ReadWriteOnce]}\n"


def test_nodes_carry_their_name_as_host_name_and_offer_their_capacity():
    nodes = list(ops.CreateNodes(count=2).manifests(ops.Names()))
    assert [node["metadata"]["name"] for node in nodes] == ["node-0", "node-1"]
    assert nodes[1]["metadata"]["labels"] == {ops.HOSTNAME: "node-1"}
    assert nodes[0]["status"]["allocatable"] == {"pods": "110", "cpu": "4", "memory": "32Gi"}


def test_label_values_are_dealt_out_in_turn():
    strategy = ops.LabelNodePrepareStrategy(label_key="zone", label_values=("a", "b"))
    nodes = ops.CreateNodes(count=3, label_node_prepare_strategy=strategy).manifests(ops.Names())
    assert [node["metadata"]["labels"]["zone"] for node in nodes] == ["a", "b", "a"]


def test_a_unique_label_differs_from_node_to_node():
    strategy = ops.UniqueNodeLabelStrategy(label_key="rack")
    nodes = ops.CreateNodes(count=3, unique_node_label_strategy=strategy).manifests(ops.Names())
    assert len({node["metadata"]["labels"]["rack"] for node in nodes}) == 3


def test_nodes_with_drivers_come_with_their_csi_nodes():
    strategy = ops.NodeAllocatableStrategy(
        node_allocatable={"example.com/disk": "3"},
        csi_node_allocatable={"disk.example": ops.DriverAllocatable(count=3)},
        migrated_plugins=("kubernetes.io/aws-ebs",),
    )
    node, csi = ops.CreateNodes(count=1, node_allocatable_strategy=strategy).manifests(ops.Names())
    assert node["status"]["allocatable"]["example.com/disk"] == "3"
    assert "example.com/disk" not in node["status"]["capacity"]
    assert csi["kind"] == "CSINode"
    assert csi["metadata"]["name"] == node["metadata"]["name"]
    assert csi["metadata"]["annotations"] == {ops.MIGRATED_PLUGINS: "kubernetes.io/aws-ebs"}
    (driver,) = csi["spec"]["drivers"]
    assert (driver["name"], driver["allocatable"]) == ("disk.example", {"count": 3})


def test_names_go_on_over_operations_and_start_anew_in_every_run(template):
    pods = ops.CreatePods(count=2, namespace="a", pod_template_path=template(POD))
    names = ops.Names()
    made = [*pods.manifests(names), *pods.manifests(names)]
    assert [pod["metadata"]["name"] for pod in made] == ["web-0", "web-1", "web-2", "web-3"]
    again = next(pods.manifests(ops.Names()))
    assert again["metadata"] == {"name": "web-0", "namespace": "a"}


def test_pods_without_template_look_like_upstreams():
    (pod,) = ops.CreatePods(count=1, namespace="a").manifests(ops.Names())
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "100m", "memory": "500Mi"}


def test_pods_with_volumes_come_with_a_bound_pair_of_their_own(template):
    pods = ops.CreatePods(
        count=2,
        namespace="a",
        pod_template_path=template(POD),
        persistent_volume_template_path=template(VOLUME),
        persistent_volume_claim_template_path=template(CLAIM),
    )
    _, _, _, volume, claim, pod = pods.manifests(ops.Names())
    assert claim["metadata"]["name"] == "pvc-1"
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"] == "pv-a-1"
    assert volume["spec"]["claimRef"]["name"] == "pvc-1"
    assert volume["spec"]["csi"] == {"driver": "disk.example", "volumeHandle": "pv-a-1"}
    assert (claim["status"]["phase"], volume["status"]["phase"]) == ("Bound", "Bound")
    assert pod["spec"]["volumes"] == [
        {"name": "vol", "persistentVolumeClaim": {"claimName": "pvc-1"}}
    ]


def test_a_claim_without_a_volume_is_left_open(template):
    pods = ops.CreatePods(
        count=1,
        namespace="a",
        pod_template_path=template(POD),
        persistent_volume_claim_template_path=template(CLAIM),
    )
    claim, pod = pods.manifests(ops.Names())
    assert claim["metadata"] == {"name": "pvc-0", "namespace": "a"}
    assert "volumeName" not in claim["spec"]
    assert pod["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "pvc-0"}


def test_sets_of_pods_go_to_a_namespace_each(template):
    inner = ops.CreatePods(count=1, pod_template_path=template(POD))
    sets = ops.CreatePodSets(count=2, namespace_prefix="team", create_pods_op=inner)
    assert sets.namespaces_used() == ("team-0", "team-1")
    made = sets.manifests(ops.Names())
    assert [pod["metadata"]["namespace"] for pod in made] == ["team-0", "team-1"]


def test_churn_puts_what_has_a_namespace_into_its_own(template):
    node = template("apiVersion: v1\nkind: Node\nmetadata: {generateName: n-}\n")
    churn = ops.Churn(mode="create", template_paths=(node, template(POD)), namespace="churn")
    names = ops.Names()
    made_node, made_pod = churn.manifests_of(0, names)
    assert "namespace" not in made_node["metadata"]
    assert made_pod["metadata"] == {"name": "web-0", "namespace": "churn"}
    assert [item["metadata"]["name"] for item in churn.manifests_of(1, names)] == ["n-1", "web-1"]


def test_namespaces_are_numbered_and_keep_the_labels_of_their_template(template):
    path = template("apiVersion: v1\nkind: Namespace\nmetadata: {labels: {team: a}}\n")
    made = ops.CreateNamespaces(prefix="ns", count=2, namespace_template_path=path)
    assert [manifest["metadata"] for manifest in made.manifests(ops.Names())] == [
        {"labels": {"team": "a"}, "name": "ns-0"},
        {"labels": {"team": "a"}, "name": "ns-1"},
    ]


def test_an_update_leaves_names_to_its_template(template):
    path = template("apiVersion: v1\nkind: Pod\nmetadata: {name: 'p-{{.Index}}'}\n")
    made = ops.UpdateAny(template_path=path, namespace="a", count=2).manifests(ops.Names())
    assert [item["metadata"]["name"] for item in made] == ["p-0", "p-1"]
