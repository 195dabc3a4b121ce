"""Readers: what each makes of the sample in examples/traces, and errors by file and line."""

import gzip
import json
from pathlib import Path

import pytest
from traces import SAMPLES

from kubesched.api.core_v1 import Node
from kubesched.lab.traces.gpu_share import GPU_MILLI, wanted_milli
from kubesched.lab.traces.reading import read_trace
from kubesched.lab.traces.trace import Arrival, Put, Remove, TraceError


def arrivals(trace):
    return {event.pod.metadata.name: event for event in trace.arrivals}


def requests(arrival):
    return arrival.pod.spec.containers[0].resources.requests


def test_openb():
    trace = read_trace([str(SAMPLES / "openb")])
    assert (trace.format, trace.shares_gpus, trace.state.count(Node)) == ("openb", True, 4)
    pods = arrivals(trace)
    assert [event.time_s for event in trace.events] == sorted(e.time_s for e in trace.events)
    assert pods["train-0"].time_s == 0
    assert pods["train-1"].lifetime_s == 8210 - 1012
    assert pods["web-0"].lifetime_s is None
    assert pods["late-0"].lifetime_s == 1000, "never scheduled: from its creation"
    assert wanted_milli(pods["infer-0"].pod) == 250
    assert wanted_milli(pods["multi-0"].pod) == 8000
    assert requests(pods["web-0"]) == {"cpu": "4000m", "memory": "8192Mi"}
    terms = pods[
        "train-1"
    ].pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    assert terms.node_selector_terms[0].match_expressions[0].values == ["V100M16", "V100M32"]
    node = trace.state.get(Node, "", "node-d")
    assert node.status.allocatable[GPU_MILLI] == 8000


def test_borg():
    trace = read_trace([str(SAMPLES / "borg")])
    pods = arrivals(trace)
    assert set(pods) == {"c-100-0", "c-100-1", "c-200-0", "c-200-0-2", "c-400-0"}
    assert trace.state.count(Node) == 2
    assert [type(e) for e in trace.events if not isinstance(e, Arrival)] == [Put, Put, Remove]
    assert pods["c-100-0"].lifetime_s == 399
    assert requests(pods["c-100-0"]) == {"cpu": "250000m", "memory": round(0.1 * 2**40)}
    assert pods["c-100-0"].pod.spec.priority == 200
    assert pods["c-200-0"].lifetime_s == 94, "until it was evicted"
    assert pods["c-200-0-2"].time_s == 100, "and submitted again"
    assert pods["c-400-0"].leaves_s == 650, "killed while it was waiting"
    assert any("alloc" in note for note in trace.notes)


def test_borg_as_csv(tmp_path):
    """Nested fields as columns, and as an object in a cell."""
    machines = tmp_path / "machine_events.csv"
    machines.write_text("time,machine_id,type,capacity.cpus,capacity.memory\n0,1,ADD,0.5,0.5\n")
    instances = tmp_path / "instance_events.csv"
    instances.write_text(
        "time,type,collection_id,instance_index,priority,resource_request\n"
        "5000000,SUBMIT,9,0,100,\"{'cpus': 0.25, 'memory': 0.125}\"\n"
    )
    trace = read_trace([str(machines), str(instances)])
    assert requests(arrivals(trace)["c-9-0"]) == {"cpu": "250000m", "memory": 2**37}


def test_packed_files_are_unpacked(tmp_path):
    for name in ("nodes.csv", "pods.csv"):
        data = (SAMPLES / "openb" / name).read_bytes()
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(data))
    assert read_trace([str(tmp_path)]).events == read_trace([str(SAMPLES / "openb")]).events


def edited(tmp_path: Path, sample: str, file: str, old: str, new: str) -> Path:
    for path in (SAMPLES / sample).iterdir():
        text = path.read_text()
        if path.name == file:
            assert old in text
            text = text.replace(old, new, 1)
        (tmp_path / path.name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("sample", "file", "old", "new", "message"),
    [
        ("openb", "pods.csv", "infer-0,2000", "infer-0,much", "pods.csv:4: cpu_milli: 'much' is"),
        ("openb", "pods.csv", "1,250", "1,2500", "pods.csv:4: gpu_milli: 2500 is more than"),
        ("openb", "pods.csv", "8,1000", "8,500", "pods.csv:8: gpu_milli: 500 of 8 GPUs: only one"),
        ("openb", "pods.csv", "train-1", "train-0", "pods.csv:3: name: pod train-0 came before"),
        ("openb", "pods.csv", "4600,1000", "460,1000", "pods.csv:2: deletion_time: 460 is before"),
        ("openb", "pods.csv", ",creation_time", ",made", "pods.csv:1: not a trace"),
        ("openb", "nodes.csv", "node-b,64000", "node-b", "nodes.csv:3: 4 fields, but the header"),
        ("openb", "nodes.csv", "node-b", "node-a", "nodes.csv:3: sn: node node-a came before"),
        ("borg", "machine_events.jsonl", '"type":1', '"type":9', "jsonl:1: type: '9' is none of"),
        (
            "borg",
            "machine_events.jsonl",
            '"cpus":1.0',
            '"cpus":-1',
            "jsonl:2: capacity.cpus: -1 is",
        ),
        (
            "borg",
            "instance_events.jsonl",
            '"type":3',
            '"type":"X"',
            "jsonl:2: type: 'X' is none of",
        ),
        ("borg", "instance_events.jsonl", '{"time":"1000000"', "{", "jsonl:2: not valid JSON"),
    ],
)
def test_errors_name_file_and_line(tmp_path, sample, file, old, new, message):
    folder = edited(tmp_path, sample, file, old, new)
    with pytest.raises(TraceError) as error:
        read_trace([str(folder)])
    assert message in str(error.value)


def test_what_does_not_belong_together(tmp_path):
    with pytest.raises(TraceError, match="not of one trace"):
        read_trace(
            [str(SAMPLES / "openb" / "nodes.csv"), str(SAMPLES / "borg" / "machine_events.jsonl")]
        )
    with pytest.raises(TraceError, match="needs one file of openb pods, not 0"):
        read_trace([str(SAMPLES / "openb" / "nodes.csv")])
    with pytest.raises(TraceError, match="neither a recording nor"):
        read_trace([str(tmp_path)])
    with pytest.raises(TraceError, match="No such file"):
        read_trace([str(tmp_path / "gone.csv")])
    odd = tmp_path / "odd.json"
    odd.write_text(json.dumps({"a": 1}))
    with pytest.raises(TraceError, match=r"odd.json:1: not a row of the Borg trace"):
        read_trace([str(odd)])
