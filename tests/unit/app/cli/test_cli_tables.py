"""Every table on terminals of 60, 80, 120 and 200 columns: no column dropped, no number cut.

What a pipe gets is the reference. A terminal must show the same characters in lines that fit, and
every number as one word.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from pseudo_terminal import printed_on_terminal
from traces import configuration, write_openb

from kubesched.app import cli
from kubesched.app.cli import conformance_run, layout, terminal
from kubesched.app.cli.main import main
from kubesched.app.cli.up import print_placements
from kubesched.app.demo import Placement
from kubesched.lab.conformance.comparison import Tally
from kubesched.lab.conformance.run import RunReport
from kubesched.testing import make_node, make_pod

WIDTHS = (60, 80, 120, 200)

NODE = "ip-10-0-{}-117.eu-central-1.compute.internal"
POD = "recommendation-service-7d9c5bb6f4-{}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    (folder / "dump.json").write_bytes(_dump())
    (folder / "web.json").write_bytes(msgspec.json.encode(_workload()))
    return folder


def _dump() -> bytes:
    nodes = [
        make_node(NODE.format(i)).capacity(cpu="8", memory="32Gi", pods="110").zone(f"zone-{i % 3}")
        for i in range(30)
    ]
    nodes[0].taint("dedicated", "machine-learning-training")
    pods = [_replica(i, NODE.format(i % 30)) for i in range(60)]
    pods += [
        make_pod("greedy-but-patient-pod").cpu("64").memory("1Gi"),
        make_pod("second-greedy-pod").cpu("65").memory("1Gi"),
        make_pod("small").cpu("1").memory("1Gi"),
    ]
    kinds = {"NodeBuilder": "Node", "PodBuilder": "Pod"}
    items = [{"kind": kinds[type(o).__name__], **o.json} for o in (*nodes, *pods)]
    listed = [{"apiVersion": "v1", **item} for item in items]
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": listed})


def _replica(number: int, node: str):
    pod = make_pod(POD.format(number)).cpu(f"{1000 + 37 * (number % 7)}m").memory("2Gi").on(node)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "recommendation", "uid": "1"}
    pod.json["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return pod.labels(app="recommendation")


def _workload() -> dict:
    container = {"name": "web", "image": "nginx", "resources": {"requests": {"cpu": "3"}}}
    metadata = {"name": "web-frontend", "labels": {"app": "web"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": 70,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": metadata, "spec": {"containers": [container]}},
        },
    }


COMMANDS = {
    "config view": "config view",
    "explain pending": "explain pod greedy-but-patient-pod --fix --from {0}/dump.json",
    "explain fits": "explain pod small --from {0}/dump.json",
    "explain wide": "explain pod small -o wide --from {0}/dump.json",
    "explain placed": "explain pod " + POD.format(7) + " --from {0}/dump.json",
    "explain node": f"explain pod small --node {NODE.format(3)}" + " --from {0}/dump.json",
    "explain pods": "explain pods --fix --from {0}/dump.json",
    "explain workload": "explain rs/recommendation --from {0}/dump.json",
    "plan drain": f"plan --drain {NODE.format(3)} --drain {NODE.format(4)}"
    + " --from {0}/dump.json",
    "plan apply": "plan -f {0}/web.json --from {0}/dump.json",
    "plan wide": "plan -f {0}/web.json -o wide --from {0}/dump.json",
    "capacity": "capacity -f {0}/web.json --from {0}/dump.json",
    "capacity wide": "capacity -f {0}/web.json -o wide --from {0}/dump.json",
    "bench list": "bench list",
    "plugin list": "plugin list --all",
}


def printing(name: str, folder: Path) -> Callable[[], object]:
    """What prints a case's tables."""
    if name in COMMANDS:
        words = COMMANDS[name].format(folder).split()
        return lambda: main(words)
    return OTHERS[name](folder)


def _read(report: bytes):
    from kubesched.lab.benchmarking.results import Report

    return msgspec.json.decode(report, type=Report)


def bench_run(folder: Path) -> Callable[[], object]:
    """The report of one run, shown again and again: figures differ from run to run."""
    from kubesched.app.cli.bench_run import show

    return lambda: show(_read(_bench_report(folder).read_bytes()))


def bench_against(folder: Path) -> Callable[[], object]:
    from kubesched.app.cli.bench_run import show

    text = _bench_report(folder).read_text()
    theirs = json.loads(text.replace('"kubesched"', '"kube-scheduler"'))
    report = json.loads(text)
    report["results"] += theirs["results"]
    return lambda: show(_read(json.dumps(report).encode()))


def _bench_report(folder: Path) -> Path:
    path = folder / "bench/report.json"
    if not path.exists():
        quick = ["--repeats", "1", "--warmup", "0", "--output-dir", str(path.parent), "-o", "json"]
        printed_on_terminal(lambda: main(["bench", "run", "Basic/tiny", *quick]), 200)
    return path


def conformance(folder: Path) -> Callable[[], object]:
    report = RunReport("v1.36.4", sequences=7, sequences_in_agreement=6)
    for tally in (report.decisions, *report.agreement.by_aspect.values()):
        tally.compared, tally.agreed = 123456, 123455
    return lambda: conformance_run.print_report(report)


def conformance_golden(folder: Path) -> Callable[[], object]:
    from kubesched.app.cli.conformance import print_report
    from kubesched.lab.conformance.comparison import Aspect
    from kubesched.lab.conformance.golden import Report

    report = Report(clusters=12, pods=345, pods_in_agreement=345)
    for aspect in Aspect:
        report.agreement.by_aspect[aspect] = Tally(98765, 98765)
    return lambda: print_report(report)


def explain_podgroup(folder: Path) -> Callable[[], object]:
    from kubesched.app.cli.explain_tables import print_pod_group
    from kubesched.insight.explain.model import (
        Domain,
        GroupExplanation,
        Member,
        Preemption,
        Verdict,
        Victim,
    )

    lacks = "0/30 nodes are available: 1 node(s) had untolerated taint(s), 29 Insufficient cpu."
    told = GroupExplanation(
        kind="PodGroup",
        group="default/training-of-a-large-model",
        verdict=Verdict.NOT_NOW,
        summary="not now. 2 of 3 pending pods find a node; minCount is 3.",
        message="minCount (3) cannot be satisfied: 2 scheduled, 0 remaining",
        min_count=3,
        pods=3,
        scheduled=0,
        waiting_for=[],
        members=[Member(pod="default/training-of-a-large-model-0", node="", lacks=lacks)],
        domains=[Domain(name="rack-17-of-the-second-hall", nodes=30, placed=2, lacks=lacks)],
        preemption=Preemption(
            node="",
            victims=[Victim(pod="default/batch-0 (PodGroup batch)", priority=-10)],
            violated_budgets=0,
        ),
        helps=["minCount 2: 2 pods would start"],
        notes=[],
    )
    return lambda: print_pod_group(told)


def explain_devices(folder: Path) -> Callable[[], object]:
    from device_worlds import GPU, attribute, gpus, held, node, pod
    from dra_objects import claim, exactly
    from explaining import explain

    from kubesched.app.cli.explain_tables import print_pod

    selector = f'{attribute("model")} in ["h100", "a100"]'
    wanted = claim("large-training-claim", exactly("accelerators", 2, selectors=[selector]))
    nodes = [each for i in range(3) for each in (node(NODE.format(i)), gpus(NODE.format(i), 2))]
    using = held(
        "other", (NODE.format(0), "gpu-0"), (NODE.format(1), "gpu-1"), pods=[POD.format(1)]
    )
    others = [held(f"h{i}", (NODE.format(2), f"gpu-{i}"), pods=["x"]) for i in range(2)]
    told = explain(pod("p", "large-training-claim"), wanted, GPU, *nodes, using, *others, fix=True)
    assert told.devices[0].holders
    return lambda: print_pod(told, wide=False)


def replay(folder: Path) -> Callable[[], object]:
    from kubesched.app.cli.replay_tables import print_report
    from kubesched.lab.traces.report import Report

    page = folder / "replay.json"
    if not page.exists():
        words = ["replay", *map(str, write_openb(folder, 1)), "--seeds", "2", "-o", "json"]
        for kind in ("LeastAllocated", "MostAllocated"):
            (folder / f"{kind}.yaml").write_text(configuration(kind))
            words += ["--config", f"{kind}={folder / kind}.yaml"]
        page.write_text(printed_on_terminal(lambda: main(words), 200))
    report = msgspec.json.decode(page.read_bytes(), type=Report)
    return lambda: print_report(report)


def demonstration(folder: Path) -> Callable[[], object]:
    placed = [Placement(POD.format(i), "Running", NODE.format(i), "zone-a") for i in range(3)]
    return lambda: print_placements(placed)


def attempts(folder: Path) -> Callable[[], object]:
    from kubesched.app.cli.explain_tables import print_attempts
    from kubesched.insight.page.attempts import Listed

    listed = [
        Listed(123456 + i, 1.8e9, f"default/{POD.format(i)}", "scheduled", NODE.format(i), 0.1, 12)
        for i in range(3)
    ]
    return lambda: print_attempts(listed)


def _costs():
    from kubesched.scheduler.plugin_profile import PluginCost

    kept = "kept for 1,234 shapes; not for others: depends on more than one node"
    return tuple(PluginCost("NodeResourcesFit", at, 123456, 7.8, 5000, kept) for at in ("Filter",))


def bench_plugins(folder: Path) -> Callable[[], object]:
    from kubesched.app.cli.bench_run import print_plugins

    results = _read(_bench_report(folder).read_bytes()).results
    return lambda: print_plugins([msgspec.structs.replace(results[0], plugins=_costs())])


def plugin_live(folder: Path) -> Callable[[], object]:
    from kubesched.app.cli.plugin_work import print_profile
    from kubesched.scheduler.plugin_profile import Blocked, PluginProfile

    profile = PluginProfile(_costs(), (Blocked("Racks", "Filter", 1.5),))
    return lambda: print_profile(profile)


def shadow_report(folder: Path) -> Callable[[], object]:
    sums = {"pods": 1234, "nodes": 30, "mostPodsOnANode": 98, "cpuPercent": 45.6}
    different = {"live": NODE.format(1), "shadow": NODE.format(2), "plugin": "NodeResourcesFit"}
    made = {
        "profile": "candidate",
        "of": "default-scheduler",
        "since": "2026-01-31T12:00:00Z",
        "until": "2026-01-31T13:00:00Z",
        "decisions": {"same": 1200, "different": 34},
        "lastError": "",
        "differences": [{**different, "reason": "+37 points", "pod": POD.format(1)}],
        "placed": {name: {**sums, "memoryPercent": 12.3} for name in ("live", "shadow")},
        "waits": {"pods": 3, "seconds": 4.5},
    }
    path = folder / "shadow.json"
    path.write_bytes(msgspec.json.encode({"shadows": [made]}))
    return lambda: main(["shadow", "report", "--from", str(path)])


def shadow_watch(folder: Path) -> Callable[[], object]:
    from kubesched.app.cli.shadow_watch import print_report
    from kubesched.insight.shadowing import CLASSES

    why = "node(s) were unschedulable"
    different = {
        "pod": f"default/{POD.format(1)}",
        "theirs": NODE.format(1),
        "ours": NODE.format(2),
    }
    found = {**different, "plugin": "NodeUnschedulable", "reason": why, "refused_since": ""}
    report = {
        "scheduler": "default-scheduler",
        "since": "2026-01-31T12:00:00Z",
        "until": "2026-01-31T13:00:00Z",
        "bindings": dict.fromkeys(CLASSES, 123),
        "unschedulable": dict.fromkeys(CLASSES, 4),
        "different": [found],
    }
    return lambda: print_report(report)


OTHERS = {
    "bench plugins": bench_plugins,
    "plugin list --live": plugin_live,
    "shadow": shadow_watch,
    "shadow report": shadow_report,
    "explain attempts": attempts,
    "bench run": bench_run,
    "bench against": bench_against,
    "conformance run": conformance,
    "conformance golden": conformance_golden,
    "explain podgroup": explain_podgroup,
    "explain devices": explain_devices,
    "replay": replay,
    "up --demo": demonstration,
}

_COMMAND = re.compile(r"\d   (kubectl|#) ")
"""Commands to be copied are not wrapped."""
_NUMBER = re.compile(r"[-+±(]*\d[\d.,/:x%)]*")


def numbers(text: str) -> Counter[str]:
    """Words that are numbers, in whatever column or sentence."""
    return Counter(word for word in text.split() if _NUMBER.fullmatch(word))


def characters(text: str) -> Counter[str]:
    return Counter("".join(text.split()))


@pytest.mark.parametrize("name", [*COMMANDS, *OTHERS])
def test_a_terminal_shows_what_a_pipe_gets(name, folder, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    print_it = printing(name, folder)
    capsys.readouterr()
    print_it()
    piped = capsys.readouterr().out
    assert piped
    for width in WIDTHS:
        shown = printed_on_terminal(print_it, width)
        lines = [line for line in shown.splitlines() if not _COMMAND.match(line)]
        assert max(map(layout.text_width, lines)) <= width, f"{width} columns"
        assert numbers(piped) - numbers(shown) == Counter(), f"{width} columns"
        assert characters(piped) - characters(shown) == Counter(), f"{width} columns"


@pytest.mark.parametrize("width", WIDTHS)
def test_a_process_of_its_own_sees_the_width(width, folder, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    words = ["explain", "pod", "greedy-but-patient-pod", "--from", f"{folder}/dump.json"]

    def run() -> None:
        command = [sys.executable, "-m", "kubesched", *words]
        # Without `env` it would inherit the $COLUMNS that readline, once imported, sets behind
        # Python's back.
        subprocess.run(command, stdout=sys.stdout, check=True, timeout=60, env=dict(os.environ))

    lines = printed_on_terminal(run, width).splitlines()
    assert max(map(layout.text_width, lines)) <= width
    assert {"REASON", "NODES", "ONLY", "PLUGIN", "WHAT", "30", "29"} <= set(" ".join(lines).split())


def test_every_table_of_the_program_is_among_them(folder, monkeypatch, capsys):
    sites = set(_call_sites())
    assert len(sites) > 10
    printed: set[tuple[str, int]] = set()
    table = terminal.table

    def recorded(*args, **kwargs):
        caller = sys._getframe(1)
        printed.update(
            (file, line)
            for file, line in sites
            if file == Path(caller.f_code.co_filename).name
            and line <= caller.f_lineno
            and line == max(at for name, at in sites if name == file and at <= caller.f_lineno)
        )
        table(*args, **kwargs)

    monkeypatch.setattr(terminal, "table", recorded)
    for name in (*COMMANDS, *OTHERS):
        printing(name, folder)()
    assert sites == printed


def _call_sites() -> Iterator[tuple[str, int]]:
    """File and line of every call of `terminal.table` in the commands."""
    for path in Path(cli.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "terminal.table":
                yield path.name, node.lineno
