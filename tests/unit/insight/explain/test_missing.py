"""An answer that depends on kinds which its source does not hold says so first, and how to get
them.
"""

from __future__ import annotations

import re
from pathlib import Path

import device_worlds
import msgspec
import pytest
from explaining import state_of

from kubesched.api.core_v1 import PersistentVolumeClaim, Pod
from kubesched.app.cli.main import main
from kubesched.insight.explain.sources import explainer_of
from kubesched.insight.state.archive import save_archive
from kubesched.insight.state.cluster_state import KINDS
from kubesched.insight.state.dumps import load_dumps
from kubesched.testing import make_node, make_pod

CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": "default"},
    "spec": {"storageClassName": "fast"},
}
CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "fast"},
    "provisioner": "disks.example.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def dumped(folder: Path, *more: dict) -> str:
    node = make_node("n").capacity(cpu="4").json
    pod = make_pod("db").cpu("1").claim("data").json
    condition = {"type": "PodScheduled", "status": "False", "message": "the true one"}
    pod["status"] = {"conditions": [condition]}
    items = [
        {"apiVersion": "v1", "kind": "Node", **node},
        {"apiVersion": "v1", "kind": "Pod", **pod},
        *more,
    ]
    path = folder / f"{len(more)}.json"
    path.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(path)


def test_a_dump_without_claims_says_so_before_the_verdict(tmp_path, capsys):
    path = dumped(tmp_path)
    assert main(["explain", "pod", "db", "--fix", "--from", path]) == 0
    out, err = capsys.readouterr()
    first, second = out.splitlines()[:2]
    assert first == (
        f"default/db: {path} holds no persistentvolumeclaims, persistentvolumes, csinodes, "
        "storageclasses; if the cluster has some, this may be wrong. Without them: waiting: "
        'persistentvolumeclaim "data" not found (VolumeRestrictions).'
    )
    assert second == (
        "Get them: kubectl get persistentvolumeclaims,persistentvolumes,csinodes.storage.k8s.io,"
        "storageclasses.storage.k8s.io -A -o json > missing.json   (and add --from missing.json)"
    )
    assert "The PodScheduled condition says: the true one" in out
    assert "older" not in out
    assert "create claim" not in out
    assert "no fixes were tried" in out
    assert f"note: {path}: 1 pods, 1 nodes\n" in err


def test_with_them_the_answer_is_plain(tmp_path, capsys):
    path = dumped(tmp_path, CLAIM, CLASS)
    assert main(["explain", "pod", "db", "--from", path]) == 0
    assert capsys.readouterr().out.startswith("default/db: fits. ")


def test_a_pod_that_needs_none_of_them_has_its_answer(tmp_path, capsys):
    path = dumped(tmp_path)
    state = load_dumps([path])
    other = make_pod("plain").cpu("1").build()
    state.put(other)
    told = explainer_of(state).explain(other)
    assert told.missing is None
    assert told.summary.startswith("fits. ")


@pytest.mark.parametrize(
    ("pod", "resources"),
    [
        pytest.param(
            device_worlds.pod("p", "c"),
            [
                "resourceclaims.resource.k8s.io",
                "resourceslices.resource.k8s.io",
                "deviceclasses.resource.k8s.io",
            ],
            id="devices",
        ),
        pytest.param(
            make_pod("p").affinity(
                "podAntiAffinity",
                required=[{"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": {}}],
            ),
            ["namespaces"],
            id="namespaces",
        ),
    ],
)
def test_what_else_is_needed(pod, resources):
    state = state_of(make_node("n").capacity(cpu="4"), pod)
    state.missing = dict.fromkeys((kind.resource for kind in KINDS), "")
    assert explainer_of(state).explain(state.of(Pod)[0]).missing.resources == resources


def test_budgets_are_needed_where_pods_would_be_evicted():
    running = make_pod("low").cpu("4").priority(0).on("n")
    state = state_of(make_node("n").capacity(cpu="4"), running, make_pod("p").cpu("3").priority(9))
    state.missing = {"poddisruptionbudgets.policy": ""}
    told = explainer_of(state).explain(state.get(Pod, "default", "p"), fix=True)
    assert told.missing.resources == ["poddisruptionbudgets.policy"]
    assert told.notes == []


def test_what_may_not_be_listed_comes_with_a_whole_dump():
    state = state_of(make_node("n").capacity(cpu="4"), make_pod("p").claim("data"))
    state.resource_versions = {"pods": "7", "nodes": "7"}
    state.missing = {"persistentvolumeclaims": "persistentvolumeclaims is forbidden"}
    told = explainer_of(state).explain(state.of(Pod)[0]).missing
    assert told.text == (
        "your account may not list persistentvolumeclaims, and this may be wrong without them"
    )
    assert told.command == "kubectl get pods,nodes,persistentvolumeclaims -A -o json > missing.json"


def test_a_snapshot_tells_empty_kinds_from_missing_ones(tmp_path):
    state = state_of(make_node("n"), make_pod("p").claim("data"))
    state.missing = {"storageclasses.storage.k8s.io": "forbidden"}
    save_archive(state, str(tmp_path / "s.jsonl.gz"), now=0)
    read = load_dumps([str(tmp_path / "s.jsonl.gz")])
    assert list(read.missing) == ["storageclasses.storage.k8s.io"]
    assert read.count(PersistentVolumeClaim) == 0


def test_a_list_of_one_kind_holds_it_even_if_empty(tmp_path):
    (tmp_path / "empty.json").write_text(
        '{"apiVersion": "v1", "kind": "PersistentVolumeClaimList", '
        '"metadata": {"resourceVersion": "7"}, "items": []}'
    )
    missing = load_dumps([str(tmp_path / "empty.json")]).missing
    assert "persistentvolumeclaims" not in missing
    assert "pods" in missing


def test_the_command_for_a_whole_dump_names_every_kind():
    page = Path(__file__).parents[4] / "docs/reference/cli.md"
    [asked] = re.findall(r"kubectl get (\S+) -A -o json > dump.json", page.read_text())
    served = [kind for kind in KINDS if not kind.api_version.startswith("scheduling.k8s.io/v1")]
    wanted = {kind.resource.partition(".")[0] for kind in served} | {"priorityclasses"}
    assert set(asked.split(",")) == wanted
