"""Commands that only wait and end are played: how long they take and what they end with."""

from __future__ import annotations

import pytest

from kubesched.playground.kubelet.commands import with_effects
from kubesched.playground.kubelet.options import EXIT_CODE, RUN_DURATION

FOREVER = "315360000.000s"
NOW = "0.000s"


def pod(*commands, restart="Never", annotations=None, **container):
    containers = [
        {"name": f"c{index}", "image": "busybox", "command": command, **container}
        for index, command in enumerate(commands)
    ]
    spec = {"restartPolicy": restart, "containers": containers}
    return {"metadata": {"name": "p", "annotations": annotations or {}}, "spec": spec}


@pytest.mark.parametrize(
    ("command", "effects"),
    [
        pytest.param(["sleep", "30"], {RUN_DURATION: "30.000s"}, id="sleep"),
        pytest.param(["/bin/sleep", "1.5m"], {RUN_DURATION: "90.000s"}, id="units"),
        pytest.param(["sleep", "infinity"], {RUN_DURATION: FOREVER}, id="for ever"),
        pytest.param(["true"], {RUN_DURATION: NOW}, id="true"),
        pytest.param(["false"], {RUN_DURATION: NOW, EXIT_CODE: "1"}, id="false"),
        pytest.param(["sh", "-c", "exit 3"], {RUN_DURATION: NOW, EXIT_CODE: "3"}, id="exit"),
        pytest.param(["/bin/sh", "-c", "sleep 2; sleep 3 && exit 1"],
                     {RUN_DURATION: "5.000s", EXIT_CODE: "1"}, id="a script"),
        pytest.param(["sh", "-c", "exit 256"], {RUN_DURATION: NOW}, id="eight bits"),
        pytest.param(["sh", "-c", "exit $CODE"], None, id="a variable"),
        pytest.param(["sh", "-c", "false; true"], None, id="after a failure"),
        pytest.param(["sh", "-c", "sleep 'x"], None, id="no shell"),
        pytest.param(["exit", "1"], None, id="exit is no program"),
        pytest.param(["nginx"], None, id="anything else"),
    ],
)  # fmt: skip
def test_what_a_command_says(command, effects):
    given = pod(command)
    played = with_effects(given)
    if effects is None:
        assert played is given
    else:
        assert played["metadata"]["annotations"] == effects


def test_all_containers_count():
    played = with_effects(pod(["sleep", "5"], ["sleep", "9"], ["false"]))
    assert played["metadata"]["annotations"] == {RUN_DURATION: "9.000s", EXIT_CODE: "1"}
    given = pod(["sleep", "5"], ["nginx"])
    assert with_effects(given) is given


def test_annotations_win():
    played = with_effects(pod(["false"], annotations={EXIT_CODE: "0", "a": "b"}))
    assert played["metadata"]["annotations"] == {RUN_DURATION: NOW, EXIT_CODE: "0", "a": "b"}


def test_pause_never_ends():
    played = with_effects(pod([], image="registry.example/pause:3.10"))
    assert played["metadata"]["annotations"] == {RUN_DURATION: FOREVER}
    given = pod([], image="pause", restart="Always")
    del given["spec"]["containers"][0]["command"]
    assert with_effects(given) is given


def test_a_job_fails_as_its_command_does(make_world):
    world = make_world()
    template = {
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "busybox", "command": ["sh", "-c", "exit 7"]}],
        }
    }
    world.api.create(
        "jobs.batch",
        {
            "metadata": {"name": "j", "namespace": "default"},
            "spec": {"backoffLimit": 0, "template": template},
        },
    )
    world.run(30)
    (failed,) = world.list("pods")
    assert failed["status"]["phase"] == "Failed"
    assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7
