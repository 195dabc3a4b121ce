"""Dumps: every shape kubectl prints, what is skipped, and how broken input is named."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.core_v1 import Namespace, Node, Pod, Service
from kubesched.api.meta import CustomObject
from kubesched.client.informers.sharing import Sharing
from kubesched.insight.state import documents, dumps
from kubesched.insight.state.cluster_state import ClusterState, Problem, StateError
from kubesched.insight.state.documents import DocumentReader
from kubesched.insight.state.dumps import load_dumps
from kubesched.testing import make_node, make_pod

POD = msgspec.to_builtins(make_pod("a").cpu("1").build())
OTHER = msgspec.to_builtins(make_pod("b").cpu("2").build())
NODE = msgspec.to_builtins(make_node("n1").build())
CUSTOM = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"text": "\n        }"}}
UNKIND = {"metadata": {"namespace": "x"}, "spec": {"text": "],}{["}}


def listed(*items: Any, kind: str = "List", api_version: str = "v1") -> dict[str, Any]:
    return {"apiVersion": api_version, "items": list(items), "kind": kind, "metadata": {}}


def load(tmp_path: Path, data: str | bytes, name: str = "dump.json") -> Any:
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return load_dumps([str(path)])


def pretty(value: Any) -> str:
    return json.dumps(value, indent=4)


def names(state: Any, kind: type[Any] = Pod) -> list[str]:
    return [obj.metadata.name for obj in state.of(kind)]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(pretty(listed(POD, NODE, OTHER)), id="an indented list"),
        pytest.param(json.dumps(listed(POD, NODE, OTHER)), id="a list on one line"),
        pytest.param(f"{json.dumps(POD)}\n{json.dumps(NODE)}\n{json.dumps(OTHER)}\n", id="lines"),
        pytest.param(
            pretty(POD) + pretty(listed(NODE)) + "\n" + pretty(OTHER), id="one after another"
        ),
        pytest.param("\ufeff\n " + pretty(listed(POD, NODE, OTHER)), id="with a byte order mark"),
        pytest.param(yaml.safe_dump(listed(POD, NODE, OTHER)), id="a YAML list"),
        pytest.param(
            yaml.safe_dump_all([POD, NODE, OTHER], explicit_start=True), id="YAML documents"
        ),
        pytest.param(
            yaml.safe_dump(POD) + "---\n---\n" + yaml.safe_dump(listed(NODE, OTHER)), id="mixed"
        ),
    ],
)
def test_every_shape_gives_the_same_objects(tmp_path: Path, text: str) -> None:
    state = load(tmp_path, text)
    assert (names(state), names(state, Node)) == (["a", "b"], ["n1"])
    assert state.get(Pod, "default", "a").spec.containers[0].resources.requests == {"cpu": "1"}


def test_items_of_a_typed_list_are_of_its_kind(tmp_path: Path) -> None:
    items = [{k: v for k, v in POD.items() if k not in ("kind", "apiVersion")}]
    text = pretty({**listed(*items, kind="PodList"), "metadata": {"resourceVersion": "17"}})
    state = load(tmp_path, text)
    assert names(state) == ["a"]
    assert state.resource_versions == {"pods": "17"}


def test_gzip_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(pretty(listed(POD)).encode()) + gzip.compress(
        b"\n" + json.dumps(OTHER).encode()
    )
    assert names(load(tmp_path, packed, "without-suffix")) == ["a", "b"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(packed))))
    state = load_dumps(["-"])
    assert names(state) == ["a", "b"]
    assert state.source == "standard input"


def test_a_directory_is_read_in_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "1.yaml").write_text(yaml.safe_dump(POD))
    (tmp_path / "2.json.gz").write_bytes(gzip.compress(json.dumps(OTHER).encode()))
    (tmp_path / "notes.txt").write_text("not: [an object")
    assert names(load_dumps([str(tmp_path)])) == ["b", "a"]


def test_a_directory_without_dumps_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"no \.json, .* files in this directory"):
        load_dumps([str(tmp_path)])


class Shelf(CustomObject):
    resource = "shelves.v1.test.example"
    rows: int = 0


def test_custom_resources_with_a_record_are_kept(tmp_path: Path) -> None:
    shelf = {"apiVersion": "test.example/v1", "kind": "Shelf", "metadata": {"name": "s"}, "rows": 3}
    state = load(tmp_path, pretty(listed(POD, shelf)))
    assert [shelf.rows for shelf in state.of(Shelf)] == [3]
    assert "1 pods, 1 shelves.test.example" in state.describe()
    assert [type(obj) for obj in state] == [Pod, Shelf]


def test_unknown_kinds_are_counted_and_named(tmp_path: Path) -> None:
    crd = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": 5}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}}
    state = load(tmp_path, pretty(listed(crd, POD, crd, secret, deployment)))
    assert state.skipped == {"example.com/v1 Thing": 2, "v1 Secret": 1, "apps/v1 Deployment": 1}
    assert "2 example.com/v1 Thing" in state.notes[0]


def test_finished_pods_are_left_out_and_counted(tmp_path: Path) -> None:
    done = {**POD, "status": {"phase": "Succeeded"}}
    state = load(tmp_path, pretty(listed(done, OTHER)))
    assert (names(state), state.finished_count) == (["b"], 1)


def test_the_newest_of_several_versions_counts(tmp_path: Path) -> None:
    def version(revision: str, phase: str) -> dict[str, Any]:
        metadata = {**POD["metadata"], "resourceVersion": revision}
        return {**POD, "metadata": metadata, "status": {"phase": phase}}

    items = version("9", "Pending"), version("10", "Running"), version("8", "Unknown")
    state = load(tmp_path, pretty(listed(*items)))
    assert [pod.status.phase for pod in state.of(Pod)] == ["Running"]
    assert "2 objects came more than once" in state.notes[0]


def test_objects_written_by_hand_get_what_the_server_would_add(tmp_path: Path) -> None:
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n"
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n"
    )
    state = load(tmp_path, text, "a.yaml")
    [pod], [namespace] = state.of(Pod), state.of(Namespace)
    assert (pod.metadata.namespace, pod.spec.scheduler_name) == ("default", "default-scheduler")
    assert pod.metadata.uid
    assert namespace.metadata.uid
    assert not namespace.metadata.namespace


BROKEN = {**POD, "spec": {"containers": "none"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            '{\n "kind": "List",\n "apiVersion": "v1",\n "items": [\n'
            + json.dumps(NODE)
            + ",\n"
            + json.dumps(BROKEN)
            + "\n]}",
            ":6: Pod default/a: spec.containers: expected array | null, got str",
            id="an item of a JSON list",
        ),
        pytest.param(
            yaml.safe_dump(NODE)
            + "---\n"
            + "kind: List\napiVersion: v1\nitems:\n- "
            + json.dumps(OTHER)
            + "\n- "
            + json.dumps(BROKEN),
            f":{yaml.safe_dump(NODE).count(chr(10)) + 6}: Pod default/a: spec.containers: expected "
            "array | null, got str",
            id="an item of a YAML list",
        ),
        pytest.param(pretty(POD)[:-30], ": input data was truncated", id="a JSON file cut short"),
        pytest.param(
            '{\n\n"kind": Pod}', ":3: JSON is malformed: invalid character", id="bad JSON"
        ),
        pytest.param(
            "kind: Pod\nmetadata:\n  name: a\n bad: x", ":4: not valid YAML: ", id="bad YAML"
        ),
        pytest.param('{"kind": "Pod"}', ":1: Pod: apiVersion: missing", id="no apiVersion"),
        pytest.param('\n{"apiVersion": "v1"}', ":2: object: kind: missing", id="no kind"),
        pytest.param(
            '{"apiVersion": "v1", "kind": "Pod", "metadata": {}}',
            ":1: Pod: metadata.name: missing",
            id="no name",
        ),
        pytest.param("[1, 2]", ":1: neither an object nor a list", id="a JSON array"),
        pytest.param("just text", ":1: neither an object nor a list", id="text"),
        pytest.param("{" * 100_000, ":1: ", id="nested JSON"),
        pytest.param("a: " + "[" * 100_000, ":1: nested deeper than 150 levels", id="nested YAML"),
        pytest.param(b"a: \xff\xfe", ":1: not UTF-8 text", id="no UTF-8"),
    ],
)
def test_broken_input_is_named_by_file_line_and_object(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    with pytest.raises(StateError) as caught:
        load(tmp_path, text)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "dump.json"))


def test_every_broken_object_is_named(tmp_path: Path) -> None:
    text = "".join(
        json.dumps({**BROKEN, "metadata": {"name": f"p{n}", "namespace": "x"}}) + "\n"
        for n in range(25)
    )
    with pytest.raises(StateError) as caught:
        load(tmp_path, text)
    assert [problem.line for problem in caught.value.problems] == list(range(1, 26))
    lines = str(caught.value).splitlines()
    assert lines[0] == "25 objects cannot be read:"
    assert "p19" in lines[20]
    assert lines[21] == "  and 5 more"


def test_missing_files_and_damaged_archives_are_named(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no-such-file: No such file or directory"):
        load_dumps([str(tmp_path / "no-such-file")])
    with pytest.raises(StateError, match=r"dump\.json: not valid gzip"):
        load(tmp_path, gzip.compress(b"x" * 100_000)[:-20])


def test_too_much_unpacked_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dumps, "MAX_BYTES", 5 << 20)
    with pytest.raises(StateError, match=r"bomb: larger than 5 MiB unpacked$"):
        load(tmp_path, gzip.compress(b" " * 10_000_000), "bomb")


@given(
    st.lists(st.sampled_from([POD, OTHER, NODE, CUSTOM, UNKIND]), max_size=12),
    st.sampled_from([None, 1, 2, 4]),
    st.integers(1, 400),
    st.sampled_from(["List", "PodList"]),
    st.booleans(),
)
def test_a_streamed_list_gives_what_a_whole_one_does(
    items: list[Any], indent: int | None, size: int, kind: str, last: bool
) -> None:
    """Whatever the indentation and wherever the pieces end; the twin reads the text without line
    breaks.
    """
    named = [
        {**item, "metadata": {**item["metadata"], "name": f"o{n}"}} for n, item in enumerate(items)
    ]
    list_ = listed(*named, kind=kind)
    if last:
        list_["items"] = list_.pop("items")
    text = json.dumps(list_, indent=indent)
    chunks = [text[i : i + size].encode() for i in range(0, len(text), size)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "PIECE_BYTES", size)
        patch.setattr(documents, "LONGEST_BEGINNING", 400)
        streamed = outcome_of(chunks)
    assert streamed == outcome_of([json.dumps(list_).encode()])


@given(st.lists(st.sampled_from([POD, OTHER, NODE, CUSTOM, UNKIND]), max_size=6), st.booleans())
def test_a_yaml_list_gives_what_a_json_list_does(items: list[Any], sort: bool) -> None:
    named = [
        {**item, "metadata": {**item["metadata"], "name": f"o{n}"}} for n, item in enumerate(items)
    ]
    text = yaml.safe_dump(listed(*named), sort_keys=sort).encode()
    assert outcome_of([text]) == outcome_of([json.dumps(listed(*named)).encode()])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("items:\n- &a\n  apiVersion: v1\n  kind: Pod\n  metadata: {name: x}\n- *a\n", None),
        ("items:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: x}\n- a: b\n c: d\n", 6),
        ("items:\n- apiVersion: v1\n  kind: Pod\n  metadata: {}\n", 2),
    ],
)
def test_yaml_items_that_need_more_than_themselves(
    tmp_path: Path, text: str, line: int | None
) -> None:
    text = "apiVersion: v1\n" + text + "kind: List\n"
    if line is None:
        assert names(load(tmp_path, text)) == ["x"]
        return
    with pytest.raises(StateError) as caught:
        load(tmp_path, text)
    assert [problem.line for problem in caught.value.problems] == [line + 1]


def outcome_of(chunks: list[bytes]) -> tuple[list[Any], list[str], Any]:
    state, problems = ClusterState("test"), list[Problem]()
    DocumentReader(state, "test", problems, Sharing()).read(iter(chunks))
    return list(state), [problem.message for problem in problems], state.skipped


def test_lines_of_problems_in_an_indented_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "PIECE_BYTES", 1000)
    items = [{**POD, "metadata": {"name": f"p{n}", "namespace": "x"}} for n in range(50)]
    for at in (0, 20, 49):
        items[at] = {**items[at], "spec": {"containers": "none"}}
    text = pretty(listed(*items))
    with pytest.raises(StateError) as caught:
        load(tmp_path, text)
    lines = text.splitlines()
    for problem, name in zip(caught.value.problems, ("p0", "p20", "p49"), strict=True):
        assert name in problem.message
        assert lines[problem.line - 1] == "        {"
        assert any(f'"{name}"' in line for line in lines[problem.line : problem.line + 12])
    with pytest.raises(StateError) as caught:
        load(tmp_path, pretty(listed(*items[1:20])).replace('"p9"', "p9"))
    [problem] = caught.value.problems
    broken = pretty(listed(*items[1:20])).replace('"p9"', "p9").splitlines()
    assert "p9" in broken[problem.line - 1]


def test_large_lists_are_read_to_their_end(tmp_path: Path) -> None:
    items = [{**POD, "metadata": {**POD["metadata"], "name": f"p{n}"}} for n in range(9000)]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "last", "namespace": "x"},
    }
    state = load(tmp_path, pretty(listed(*items, service)))
    assert state.count(Pod) == 9000
    assert names(state, Service) == ["last"]
    assert state.of(Pod)[5].spec == state.of(Pod)[8999].spec
