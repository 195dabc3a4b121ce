"""`kubesched explain` from the command line: what it prints, and one clear sentence for every wrong
input.
"""

from __future__ import annotations

import json

import msgspec
import pytest
import yaml

from kubesched.app.cli.explain import why_words
from kubesched.app.cli.main import main
from kubesched.testing import make_node, make_pod


@pytest.fixture
def dump(tmp_path):
    objects = [
        *(make_node(f"node-{i}").capacity(cpu="4", memory="8Gi") for i in range(3)),
        make_node("gpu-1").capacity(cpu="64").taint("gpu", "true"),
        make_pod("web-1").cpu("2").on("node-0"),
        make_pod("greedy").cpu("14").label("app", "greedy"),
        make_pod("greedy-2").cpu("14").label("app", "greedy"),
        make_pod("ok").cpu("3"),
        make_pod("far", "elsewhere"),
    ]
    kinds = {"NodeBuilder": "Node", "PodBuilder": "Pod"}
    items = [{"apiVersion": "v1", "kind": kinds[type(o).__name__], **o.json} for o in objects]
    path = tmp_path / "dump.json"
    path.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(path)


def test_a_pending_pod(dump, capsys):
    assert main(["explain", "pod", "greedy", "--from", dump]) == 0
    out = capsys.readouterr().out
    assert out.startswith("default/greedy: not now. No node of 4 takes it")
    assert "Insufficient cpu: wants 14, largest free part is 4" in out
    assert "taint gpu=true:NoSchedule" in out
    assert "Message: 0/4 nodes are available: 1 node(s) had untolerated taint(s), 3 Insuff" in out


@pytest.mark.parametrize("pod", ["web-1", "ok"])
def test_a_pod_that_fits_has_nothing_to_be_fixed(pod, dump, capsys):
    assert main(["explain", "pod", pod, "--fix", "--from", dump]) == 0
    assert "help" not in capsys.readouterr().out


def test_one_node(dump, capsys):
    assert main(["explain", "pod", "greedy", "--node", "node-0", "--from", dump]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "default/greedy does not fit node-0.",
        "NodeResourcesFit rejects it: 12 cpu (2 of 4 free).",
    ]


def test_a_node_that_takes_it_shows_its_scores(dump, capsys):
    assert main(["explain", "pod", "ok", "--node", "node-1", "--from", dump]) == 0
    out = capsys.readouterr().out
    assert out.startswith("default/ok fits node-1: rank 1 of 2, total ")
    assert "NodeResourcesBalancedAllocation" in out


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_get_every_node(form, read, dump, capsys):
    assert main(["explain", "pod", "ok", "-o", form, "--from", dump]) == 0
    told = read(capsys.readouterr().out)
    assert (told["pod"], told["verdict"], len(told["matrix"])) == ("default/ok", "Fits", 4)


def test_wide_lists_every_node_with_raw_scores(dump, capsys):
    assert main(["explain", "pod", "ok", "-o", "wide", "--from", dump]) == 0
    assert "NodeResourcesFit" in capsys.readouterr().out


def test_equal_stories_are_told_once(dump, capsys):
    assert main(["explain", "pods", "-l", "app=greedy", "--from", dump]) == 0
    out = capsys.readouterr().out
    assert out.startswith("default/greedy, default/greedy-2: not now.")
    assert out.count("Insufficient cpu") == 1


def test_the_schema_is_printed(capsys):
    assert main(["explain", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$id"] == "urn:kubesched:explain:v1"


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["pod", "nope"], 1, 'error: pod "default/nope" not found in '),
        (["pod", "far"], 1, "; there is one in elsewhere"),
        (["pod", "ok", "--node", "nope"], 1, 'error: node "nope" not found in '),
        (["pod", "a/ok", "-n", "b"], 1, "error: a/ok and --namespace b contradict each other"),
        (["pods", "-l", "a=b=c"], 1, "error: --selector 'a=b=c': "),
        (["pod", "ok", "--config", "/nowhere.yaml"], 1, "cannot read the configuration file"),
        (["pod", "ok", "-o", "xml"], 2, "error: argument -o/--output: invalid choice: 'xml'"),
        (["pod", "ok", "--recording", "/nowhere"], 2, "name different sources; choose one"),
        (["pod", "ok", "--at", "5"], 2, "error: --at needs --recording"),
        (["pod"], 2, "error: the following arguments are required: NAME"),
        (["deploy"], 2, "error: which Deployment? It is 'kubesched explain deploy NAME'"),
        (["job", "-n", "x"], 2, "error: which Job? It is 'kubesched explain job NAME'"),
        (["podgruop/g"], 2, 'error: unknown kind "podgruop"; did you mean "podgroup"?'),
    ],
)
def test_wrong_input_gets_one_sentence(words, code, sentence, dump, capsys):
    assert main(["explain", *words, *(["--from", dump] if len(words) > 1 else [])]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert sentence in shown.err


def test_a_file_that_is_not_there(capsys):
    assert main(["explain", "pod", "a", "--from", "/nowhere.json"]) == 1
    assert capsys.readouterr().err == "error: /nowhere.json: No such file or directory\n"


def test_plugins_that_are_not_installed_are_named(dump, tmp_path, capsys):
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins:\n    filter:\n      enabled:\n      - name: NotInstalled\n"
    )
    assert main(["explain", "pod", "ok", "--config", str(config), "--from", dump]) == 1
    assert "NotInstalled" in capsys.readouterr().err


# -- other ways to ask -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [["pod/greedy"], ["po/greedy"], ["pods/greedy"], ["po", "greedy"], ["pod", "greedy"]]
)
def test_a_pod_is_named_as_for_kubectl(words, dump, capsys):
    assert main(["explain", *words, "--from", dump]) == 0
    assert capsys.readouterr().out.startswith("default/greedy: not now.")


def test_fixes_of_several_pods_are_in_the_table(dump, capsys):
    assert main(["explain", "pods", "--fix", "--from", dump]) == 0
    out = capsys.readouterr().out
    assert out.count("WHAT WOULD HELP (each was tried)") == 1, "two pods, one story"
    assert "1   tolerate gpu=true" in out
    assert "kubectl" not in out
    assert "\n'kubesched explain pod NAME --fix' prints the commands.\n" in out


def test_notes_are_printed_once(dump, tmp_path, capsys):
    extra = tmp_path / "secret.json"
    extra.write_text('{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}')
    for what in (["pod", "greedy"], ["pods"]):
        assert main(["explain", *what, "--from", dump, "--from", str(extra)]) == 0
        shown = capsys.readouterr()
        assert (shown.out + shown.err).count("skipped objects that scheduling does not read") == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["pod", "ok", "--fixx"], 'error: unknown option --fixx; did you mean "--fix"?'),
        (["pod", "ok", "--fiks"], 'error: unknown option --fiks; did you mean "--fix"?'),
        (["pod", "ok", "--nmespace=x"], 'unknown option --nmespace; did you mean "--namespace"?'),
        (["pod", "ok", "--zzz"], "error: unknown option --zzz\n"),
        (["podz"], "unknown: 'podz'; did you mean \"pod\"? (one of pod, pods, workload,"),
        (["pod", "ok", "more"], "error: unrecognized arguments: more"),
    ],
)
def test_an_unknown_word_gets_a_suggestion_of_that_command(words, sentence, capsys):
    assert main(["explain", *words]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    command = "kubesched explain pod" if words[0] == "pod" else "kubesched explain"
    assert err.endswith(f"see '{command} --help'\n")


def test_an_unknown_kind_gets_a_suggestion(capsys):
    assert main(["explain", "depoyment/web"]) == 2
    err = capsys.readouterr().err
    assert err.startswith('error: unknown kind "depoyment"; did you mean "deployment"?\n')


def test_why_is_explain_with_fixes():
    assert why_words(["web-1", "-n", "x"]) == ["pod", "web-1", "-n", "x", "--fix"]
    assert why_words(["pod/web-1"]) == ["pod", "web-1", "--fix"]
    assert why_words(["deploy/web"]) == ["workload", "deploy/web", "--fix"]
    assert why_words(["pods", "-A"]) == ["pods", "-A", "--fix"]
    assert why_words(["web/web-1"]) == ["pod", "web/web-1", "--fix"], "a namespace"
    assert why_words([]) == why_words(["-h"]) == ["pod", "--help"]


# -- workloads -------------------------------------------------------------------------------------


def owned(name, kind, controller, builder):
    reference = {"kind": kind, "name": controller, "uid": controller, "controller": True}
    builder.json["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", **reference}]
    return {"apiVersion": "v1", "kind": "Pod", **builder.json}


@pytest.fixture
def workloads(tmp_path):
    failure = {
        "type": "ReplicaFailure",
        "status": "True",
        "reason": "FailedCreate",
        "message": 'pods "web-1-x" is forbidden: exceeded quota: small',
    }
    reference = {"kind": "Deployment", "name": "web", "uid": "1", "controller": True}
    items = [
        {"apiVersion": "v1", "kind": "Node", **make_node("n").capacity(cpu="4").json},
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": "web-1",
                "namespace": "default",
                "ownerReferences": [{"apiVersion": "apps/v1", **reference}],
            },
            "spec": {"replicas": 5},
            "status": {"conditions": [failure]},
        },
        owned("a", "ReplicaSet", "web-1", make_pod("web-1-a").on("n")),
        owned("b", "ReplicaSet", "web-1", make_pod("web-1-b").cpu("64")),
        owned("c", "Job", "batch", make_pod("batch-c").on("n")),
    ]
    path = tmp_path / "workloads.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(path)


@pytest.mark.parametrize("words", [["deployment/web"], ["deploy", "web"], ["rs/web-1"]])
def test_a_workload_that_cannot_make_all_its_pods(words, workloads, capsys):
    assert main(["explain", *words, "--from", workloads]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(": 2 of 5 pods exist, 1 placed, 1 pending.")
    assert lines[1] == (
        'No more are made: FailedCreate: pods "web-1-x" is forbidden: exceeded quota: small'
    )
    assert lines[3].startswith("default/web-1-b: never. No node of 1 could take it")


def test_a_workload_whose_pods_are_all_placed(workloads, capsys):
    assert main(["explain", "job/batch", "--from", workloads]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Job default/batch: 1 pods exist, 1 placed, 0 pending.",
        "",
        "POD       NODE",
        "batch-c   n",
    ]


def test_a_workload_for_programs(workloads, capsys):
    assert main(["explain", "deployment/web", "-o", "json", "--from", workloads]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["workload"], told["wanted"]) == ("Deployment/default/web", 5)
    assert [pod["verdict"] for pod in told["pods"]] == ["Placed", "Never"]


def test_a_workload_that_nothing_is_known_of(workloads, capsys):
    assert main(["explain", "deployment/nope", "--from", workloads]) == 1
    assert 'error: Deployment "default/nope" not found in ' in capsys.readouterr().err
