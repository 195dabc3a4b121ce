"""Files of objects: what is read, and one sentence with file and line for what cannot be."""

from __future__ import annotations

import pytest

from kubesched.insight.planning.manifests import read_manifests
from kubesched.insight.state.planned_cluster import PlanError

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"


def written(tmp_path, text, name="objects.yaml"):
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_documents_and_lists_are_read_in_order(tmp_path):
    listed = (
        "---\napiVersion: v1\nkind: List\nitems:\n"
        "- {apiVersion: v1, kind: Pod, metadata: {name: b}}\n"
    )
    path = written(tmp_path, f"# objects\n---\n{POD}{listed}---\n")
    assert [(each.name, each.line) for each in read_manifests([path])] == [("a", 3), ("b", 7)]


def test_json_is_read(tmp_path):
    path = written(tmp_path, '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}')
    assert str(read_manifests([path])[0]).endswith("objects.yaml:1: Pod a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "objects.yaml: no objects in it", id="nothing"),
        pytest.param(
            f"{POD}---\nkind: Pod\n", "objects.yaml:5: apiVersion: missing", id="no apiVersion"
        ),
        pytest.param("a: [1\n", "not valid YAML", id="broken YAML"),
        pytest.param('{"a": ', "not valid JSON", id="broken JSON"),
        pytest.param("- 1\n", "objects.yaml:1: neither an object nor a list", id="no object"),
        pytest.param(
            "apiVersion: v1\nkind: Pod\nmetadata: 3\n",
            "Pod: metadata: expected an object",
            id="metadata of another type",
        ),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, text, message):
    with pytest.raises(PlanError, match=message):
        read_manifests([written(tmp_path, text)])


def test_a_file_that_is_missing_is_named():
    with pytest.raises(PlanError, match=r"nowhere\.yaml: No such file"):
        read_manifests(["nowhere.yaml"])
