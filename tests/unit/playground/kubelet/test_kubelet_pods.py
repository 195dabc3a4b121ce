"""Pods on fake kubelets live as on real ones: they start, serve, end, restart and go in time."""

from __future__ import annotations

import pytest

from kubesched.playground.kubelet.node_templates import NodePool
from kubesched.playground.kubelet.options import KubeletOptions
from kubesched.playground.kubelet.stages import load_stages

RUN_FOR = "kubelet.kubesched.io/run-duration"
EXIT_CODE = "kubelet.kubesched.io/exit-code"


def status(world, name="solo"):
    return world.get("pods", name)["status"]


def conditions(world, name="solo"):
    return {each["type"]: each["status"] for each in status(world, name)["conditions"]}


def states(world, name="solo", field="containerStatuses"):
    return {each["name"]: next(iter(each["state"])) for each in status(world, name)[field]}


def test_a_bound_pod_is_first_created_then_runs(world):
    world.pod()
    world.settle()
    first = status(world)
    assert first["phase"] == "Pending"
    assert first["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert first["startTime"]
    assert conditions(world) == {
        "PodScheduled": "True",
        "PodReadyToStartContainers": "False",
        "Initialized": "True",
        "ContainersReady": "False",
        "Ready": "False",
    }
    unready = next(each for each in first["conditions"] if each["type"] == "Ready")
    assert unready["reason"] == "ContainersNotReady"
    assert unready["message"] == "containers with unready status: [main]"
    world.run(5)
    running = status(world)
    assert running["phase"] == "Running"
    assert set(conditions(world).values()) == {"True"}
    assert running["podIP"].startswith("10.")
    assert running["podIPs"] == [{"ip": running["podIP"]}]
    assert running["hostIP"].startswith("172.16.")
    assert states(world) == {"main": "running"}
    assert world.reasons("solo") == ["Pulled", "Created", "Started"]


def test_an_unbound_pod_is_left_to_the_scheduler(world):
    world.is_scheduling = False
    world.pod()
    world.run(30)
    assert "startTime" not in status(world)


def test_pods_have_addresses_of_their_own_and_host_network_pods_the_nodes(make_world):
    world = make_world(2)
    for index in range(8):
        world.pod(f"p{index}")
    world.pod("host", hostNetwork=True)
    world.run(5)
    addresses = [status(world, f"p{index}")["podIP"] for index in range(8)]
    assert len(set(addresses)) == 8
    assert status(world, "host")["podIP"] == status(world, "host")["hostIP"]


def test_init_containers_end_before_the_others_start_and_sidecars_stay(world):
    world.pod(
        initContainers=[
            {"name": "setup", "image": "i"},
            {"name": "proxy", "image": "p", "restartPolicy": "Always"},
        ]
    )
    world.settle()
    assert conditions(world)["Initialized"] == "False"
    assert states(world, field="initContainerStatuses") == {"setup": "waiting", "proxy": "waiting"}
    world.run(10)
    assert states(world, field="initContainerStatuses") == {
        "setup": "terminated",
        "proxy": "running",
    }
    assert states(world) == {"main": "running"}
    assert set(conditions(world).values()) == {"True"}


def test_readiness_gates_hold_the_pod_back(world):
    world.pod(readinessGates=[{"conditionType": "example.com/lit"}])
    world.run(5)
    assert (conditions(world)["ContainersReady"], conditions(world)["Ready"]) == ("True", "False")
    lit = [*status(world)["conditions"], {"type": "example.com/lit", "status": "True"}]
    world.patch("pods", "solo", {"status": {"conditions": lit}}, subresource="status")
    world.settle()
    assert conditions(world)["Ready"] == "True"


@pytest.mark.parametrize("restart", ["Never", "OnFailure"])
def test_a_pod_with_a_given_duration_succeeds_after_it(world, restart):
    world.pod(metadata={"annotations": {RUN_FOR: "30s"}}, restartPolicy=restart)
    world.run(25)
    assert status(world)["phase"] == "Running"
    world.run(10)
    assert status(world)["phase"] == "Succeeded"
    assert states(world) == {"main": "terminated"}
    assert conditions(world)["Ready"] == "False"
    ended = status(world)["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed")


def test_a_pod_without_a_duration_runs_on(world):
    world.pod(restartPolicy="Never")
    world.run(3600)
    assert status(world)["phase"] == "Running"


def test_a_pod_told_to_fail_fails_with_its_exit_code(world):
    world.pod(metadata={"annotations": {EXIT_CODE: "42"}}, restartPolicy="Never")
    world.run(10)
    assert status(world)["phase"] == "Failed"
    ended = status(world)["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (42, "Error")


def test_a_pod_that_restarts_crashes_again_and_again(world):
    world.pod(metadata={"annotations": {EXIT_CODE: "1"}}, restartPolicy="Always")
    world.run(4)
    container = status(world)["containerStatuses"][0]
    assert container["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert container["lastState"]["terminated"]["exitCode"] == 1
    assert status(world)["phase"] == "Running"
    world.run(60)
    assert status(world)["containerStatuses"][0]["restartCount"] >= 3


def test_a_deadline_ends_the_pod(world):
    world.pod(restartPolicy="Never", activeDeadlineSeconds=30)
    world.run(25)
    assert status(world)["phase"] == "Running"
    world.run(10)
    ended = status(world)
    assert (ended["phase"], ended["reason"]) == ("Failed", "DeadlineExceeded")
    assert ended["message"] == "Pod was active on the node longer than the specified deadline"
    assert states(world) == {"main": "terminated"}
    assert world.reasons("solo")[-1] == "DeadlineExceeded"


def test_a_command_that_does_nothing_ends_the_pod(world):
    main = {"name": "main", "image": "busybox", "command": ["true"]}
    world.pod(restartPolicy="Never", containers=[main])
    world.run(5)
    assert status(world)["phase"] == "Succeeded"


# -- deletion -------------------------------------------------------------------------------------


def test_a_deleted_pod_takes_a_moment_and_is_gone(world):
    world.pod()
    world.run(5)
    world.delete("pods", "solo")
    world.settle()
    assert world.get("pods", "solo")["metadata"]["deletionTimestamp"]
    world.run(3)
    assert not world.exists("pods", "solo")
    assert world.reasons("solo")[-1] == "Killing"


def test_the_grace_period_is_the_limit(make_world):
    slow = b"""
apiVersion: kubesched.io/v1alpha1
kind: KubeletStages
stages:
- name: terminate
  selector: {matchExpressions: [{key: .metadata.deletionTimestamp, operator: Exists}]}
  delay: {duration: 1h}
  next: {delete: true}
- name: run
  selector: {matchExpressions: [{key: .status.phase, operator: In, values: [Pending]}]}
  next: {phase: Running, podIP: true, containers: {state: running}}
"""
    world = make_world(kubelet=KubeletOptions(nodes=1, stages=load_stages(slow)))
    world.pod()
    world.run(1)
    world.delete("pods", "solo", grace_period_s=10)
    world.run(8)
    assert world.exists("pods", "solo")
    world.run(3)
    assert not world.exists("pods", "solo")


def test_a_shortened_grace_period_counts(make_world, world):
    world.pod(terminationGracePeriodSeconds=300)
    world.run(5)
    world.delete("pods", "solo")
    world.delete("pods", "solo", grace_period_s=0)
    world.settle()
    assert not world.exists("pods", "solo")


def test_a_finalizer_keeps_the_object_but_not_the_place(make_world):
    world = make_world(
        kubelet=KubeletOptions(
            nodes=1, pools=(NodePool(capacity={"cpu": "1", "memory": "1Gi", "pods": "1"}),)
        )
    )
    world.pod("first", metadata={"finalizers": ["example.com/wait"]})
    world.run(5)
    world.delete("pods", "first")
    world.run(5)
    assert world.exists("pods", "first")
    world.pod("second")
    world.run(5)
    assert status(world, "second")["phase"] == "Running"
    world.patch("pods", "first", {"metadata": {"finalizers": None}})
    assert not world.exists("pods", "first")


def test_a_finished_pod_goes_at_once(world):
    world.pod(metadata={"annotations": {RUN_FOR: "1s"}}, restartPolicy="Never")
    world.run(10)
    world.delete("pods", "solo")
    world.settle()
    assert not world.exists("pods", "solo")


def test_a_dead_kubelet_neither_starts_nor_ends_pods(make_world):
    world = make_world(1)
    world.pod("before")
    world.run(5)
    world.patch(
        "nodes", "node-0", {"metadata": {"annotations": {"kubelet.kubesched.io/stopped": "true"}}}
    )
    world.pod("after")
    world.delete("pods", "before")
    world.run(20)
    assert "startTime" not in status(world, "after")
    assert world.exists("pods", "before")
    world.patch(
        "nodes", "node-0", {"metadata": {"annotations": {"kubelet.kubesched.io/stopped": None}}}
    )
    world.run(5)
    assert status(world, "after")["phase"] == "Running"
    assert not world.exists("pods", "before")


# -- admission ------------------------------------------------------------------------------------


def tiny(**capacity):
    return KubeletOptions(
        nodes=1, pools=(NodePool(capacity={"cpu": "1", "memory": "1Gi", "pods": "3", **capacity}),)
    )


def asking(**requests):
    return [{"name": "main", "image": "i", "resources": {"requests": requests}}]


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        pytest.param({"cpu": "600m"}, {"cpu": "600m"}, "OutOfcpu", id="cpu"),
        pytest.param({"memory": "1Gi"}, {"memory": "1"}, "OutOfmemory", id="memory"),
        pytest.param({"cpu": "1"}, {"memory": "1Gi"}, None, id="what fits is taken"),
        pytest.param({"cpu": "1"}, {}, None, id="asking for nothing always fits"),
    ],
)
def test_a_node_that_is_full_refuses(make_world, first, second, reason):
    world = make_world(kubelet=tiny())
    world.pod("first", containers=asking(**first))
    world.settle()
    world.pod("second", containers=asking(**second))
    world.run(5)
    assert status(world, "first")["phase"] == "Running"
    got = status(world, "second")
    assert got.get("reason") == reason
    assert got["phase"] == ("Failed" if reason else "Running")
    if reason:
        assert reason in world.reasons("second")
        assert got["message"].startswith("Pod was rejected: Node didn't have enough resource: ")


def test_the_message_has_the_numbers(make_world):
    world = make_world(kubelet=tiny())
    world.pod("first", containers=asking(cpu="600m"))
    world.settle()
    world.pod("second", containers=asking(cpu="500m"))
    world.run(5)
    assert status(world, "second")["message"] == (
        "Pod was rejected: Node didn't have enough resource: cpu,"
        " requested: 500, used: 600, capacity: 1000"
    )


def test_the_number_of_pods_counts(make_world):
    world = make_world(kubelet=tiny(pods="2"))
    for name in "abc":
        world.pod(name)
        world.settle()
    world.run(5)
    assert [status(world, name)["phase"] for name in "abc"] == ["Running", "Running", "Failed"]
    assert status(world, "c")["reason"] == "OutOfpods"


def test_a_place_given_up_can_be_taken_again(make_world):
    world = make_world(kubelet=tiny())
    world.pod("first", containers=asking(cpu="1"))
    world.run(5)
    world.delete("pods", "first")
    world.run(5)
    world.pod("second", containers=asking(cpu="1"))
    world.run(5)
    assert status(world, "second")["phase"] == "Running"


def test_a_pod_for_another_operating_system_is_refused(make_world):
    world = make_world(kubelet=tiny())
    world.pod("here", os={"name": "linux"})
    world.pod("elsewhere", os={"name": "windows"})
    world.run(5)
    assert status(world, "here")["phase"] == "Running"
    assert status(world, "elsewhere")["reason"] == "PodOSNotSupported"


def test_a_taken_host_port_is_refused(make_world):
    world = make_world(kubelet=tiny())
    port = [{"name": "main", "image": "i", "ports": [{"containerPort": 80, "hostPort": 8080}]}]
    world.pod("first", containers=port)
    world.settle()
    world.pod("second", containers=port)
    world.run(5)
    assert status(world, "second")["reason"] == "NodePorts"


def test_a_pod_bound_to_a_node_it_does_not_select_is_refused(make_world):
    world = make_world(1)
    world.pod("lost", nodeSelector={"disk": "ssd"})
    world.run(5)
    assert status(world, "lost")["reason"] == "NodeAffinity"


def test_a_device_the_node_never_heard_of_is_left_to_others(make_world):
    world = make_world(1)
    world.pod(
        "gpu",
        containers=[
            {
                "name": "main",
                "image": "i",
                "resources": {
                    "requests": {"example.com/gpu": "1"},
                    "limits": {"example.com/gpu": "1"},
                },
            }
        ],
    )
    world.run(5)
    assert status(world, "gpu")["phase"] == "Running"


def test_a_kubelet_that_comes_back_does_not_judge_running_pods_again(make_world):
    world = make_world(kubelet=tiny())
    world.pod("first", containers=asking(cpu="800m"))
    world.run(5)
    world.patch(
        "nodes", "node-0", {"status": {"allocatable": {"cpu": "100m"}}}, subresource="status"
    )
    world.run(5)
    assert status(world, "first")["phase"] == "Running"
    world.pod("second", containers=asking(cpu="10m"))
    world.run(5)
    assert status(world, "second")["reason"] == "OutOfcpu"


def test_a_pod_created_with_its_node_is_scheduled(world):
    world.pod("pinned", nodeName="node-0")
    world.run(5)
    conditions = world.get("pods", "pinned")["status"]["conditions"]
    assert ("PodScheduled", "True") in {(entry["type"], entry["status"]) for entry in conditions}


def sleeping(seconds):
    hook = {"preStop": {"sleep": {"seconds": seconds}}}
    return [{"name": "main", "image": "web:1", "lifecycle": hook}]


@pytest.mark.parametrize(
    ("sleep_s", "grace_s", "still_there_s", "gone_s"),
    [
        pytest.param(10, 30, 9.5, 12.0, id="the hook takes its time"),
        pytest.param(60, 5, 6.5, 7.5,
                     id="a hook longer than the grace period gets two seconds more"),
        pytest.param(10, 0, None, 1.0, id="without grace no hook runs"),
    ],
)  # fmt: skip
def test_a_sleeping_pre_stop_hook_delays_the_end(world, sleep_s, grace_s, still_there_s, gone_s):
    world.pod("slow", containers=sleeping(sleep_s), nodeName="node-0")
    world.run(5)
    start = world.clock.monotonic()
    world.delete("pods", "slow", grace_period_s=grace_s)
    if still_there_s is not None:
        world.run(still_there_s)
        assert world.exists("pods", "slow")
    world.run(gone_s - (world.clock.monotonic() - start))
    assert not world.exists("pods", "slow")


def reasons_waiting(world, field="containerStatuses"):
    return {
        each["name"]: each["state"].get("waiting", {}).get("reason")
        for each in status(world)[field]
    }


@pytest.mark.parametrize(
    "image",
    [
        "foo:non-existent",
        "invalid.registry.example/app:1",
        "local/app-doesnt-exist:1",
        "web:404",
        "web:nonexistent",
    ],
)
def test_an_image_that_does_not_exist_is_not_pulled(world, image):
    world.pod(containers=[{"name": "main", "image": image}])
    world.run(1.5)
    assert reasons_waiting(world) == {"main": "ErrImagePull"}
    world.run(60)
    assert status(world)["phase"] == "Pending"
    assert reasons_waiting(world) == {"main": "ImagePullBackOff"}
    waiting = status(world)["containerStatuses"][0]["state"]["waiting"]
    assert waiting["message"] == f'Back-off pulling image "{image}"'
    assert {"Pulling", "Failed", "BackOff"} <= set(world.reasons("solo"))
    world.patch("pods", "solo", {"spec": {"containers": [{"name": "main", "image": "app:1"}]}})
    world.run(2)
    assert states(world) == {"main": "running"}


def test_a_readiness_probe_succeeds_after_its_initial_delay(world):
    probe = {"initialDelaySeconds": 30, "tcpSocket": {"port": 80}}
    world.pod(containers=[{"name": "main", "image": "app:1", "readinessProbe": probe}])
    world.run(20)
    assert status(world)["phase"] == "Running"
    assert conditions(world)["Ready"] == "False"
    world.run(15)
    assert conditions(world)["Ready"] == "True"
    assert status(world)["containerStatuses"][0]["restartCount"] == 0


def init_pod(world, restart_policy):
    init = [
        {"name": "one", "image": "i", "command": ["true"]},
        {"name": "two", "image": "i", "command": ["/bin/false"]},
        {"name": "three", "image": "i"},
    ]
    world.pod(initContainers=init, restartPolicy=restart_policy)
    world.run(5)


def test_containers_behind_a_failing_init_container_have_never_run_when_the_pod_goes(world):
    init_pod(world, "Always")
    seen = []
    world.api.subscribe("pods", lambda _type, pod, _old: seen.append(pod), replay=False)
    world.delete("pods", "solo")
    world.run(5)
    assert not world.exists("pods", "solo")
    last = seen[-1]["status"]
    assert last["phase"] == "Failed"
    assert [each["state"] for each in last["containerStatuses"]] == [
        {"waiting": {"reason": "PodInitializing"}}
    ]


def test_a_failing_init_container_fails_a_pod_that_does_not_restart(world):
    init_pod(world, "Never")
    assert status(world)["phase"] == "Failed"
    assert states(world, field="initContainerStatuses") == {
        "one": "terminated",
        "two": "terminated",
        "three": "waiting",
    }
    assert status(world)["initContainerStatuses"][1]["state"]["terminated"]["exitCode"] == 1
    assert states(world) == {"main": "waiting"}


def test_a_failing_init_container_is_restarted(world):
    init_pod(world, "Always")
    world.run(40)
    assert status(world)["phase"] == "Pending"
    [_, two, _] = status(world)["initContainerStatuses"]
    assert two["lastState"]["terminated"]["exitCode"] == 1
    assert two["restartCount"] >= 3
    assert reasons_waiting(world, "initContainerStatuses") == {
        "one": None,
        "two": "CrashLoopBackOff",
        "three": "PodInitializing",
    }
    incomplete = next(each for each in status(world)["conditions"] if each["type"] == "Initialized")
    assert incomplete["message"] == "containers with incomplete status: [two three]"


def test_a_running_container_states_its_resources(world):
    resources = {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}
    world.pod(containers=[{"name": "main", "image": "app:1", "resources": resources}])
    world.run(5)
    [main] = status(world)["containerStatuses"]
    assert main["resources"] == resources
    assert main["allocatedResources"] == {"cpu": "100m"}
    assert {each["observedGeneration"] for each in status(world)["conditions"]} == {1}
