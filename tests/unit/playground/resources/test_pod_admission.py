"""What a pod becomes on its way in: defaults, priority, tolerations, selectors by own labels,
status.
"""

from __future__ import annotations

import pytest

from kubesched.base.errors import BadRequest, Forbidden
from kubesched.playground.control_plane import publish
from kubesched.playground.resources.admission.pods import MOUNT_PATH, qos_class


def test_a_minimal_pod_gets_the_defaults_of_a_real_cluster(api, make_pod):
    spec = api.create("pods", make_pod())["spec"]
    assert spec["containers"] == [
        {
            "name": "main",
            "image": "app:1",
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent",
        }
    ]
    del spec["containers"], spec["tolerations"]
    assert spec == {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "enableServiceLinks": True,
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
    }


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        pytest.param("nginx", "Always", id="no tag means latest"),
        pytest.param("nginx:latest", "Always", id="latest moves"),
        pytest.param("nginx:1.2", "IfNotPresent", id="a tag stays"),
        pytest.param("host:5000/nginx", "Always", id="a port is not a tag"),
        pytest.param("nginx@sha256:abc", "IfNotPresent", id="a digest stays"),
    ],
)
def test_images_are_pulled_again_only_if_they_can_move(api, make_pod, image, policy):
    pod = api.create("pods", make_pod(containers=[{"name": "c", "image": image}]))
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_requests_are_filled_in_from_limits_and_written_canonically(api, make_pod):
    resources = {
        "limits": {"cpu": 0.5, "memory": "1073741824", "example.com/gpu": "2"},
        "requests": {"cpu": "0.1001"},
    }
    pod = api.create(
        "pods", make_pod(containers=[{"name": "c", "image": "i", "resources": resources}])
    )
    assert pod["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "500m", "memory": "1073741824", "example.com/gpu": "2"},
        "requests": {"cpu": "101m", "memory": "1073741824", "example.com/gpu": "2"},
    }


def test_an_unreadable_quantity_refuses_the_pod(api, make_pod):
    resources = {"requests": {"cpu": "lots"}}
    with pytest.raises(BadRequest, match="quantities must match the regular expression"):
        api.create(
            "pods", make_pod(containers=[{"name": "c", "image": "i", "resources": resources}])
        )


def test_five_minutes_patience_with_nodes_in_trouble(api, make_pod):
    tolerations = api.create("pods", make_pod())["spec"]["tolerations"]
    assert [(each["key"], each["tolerationSeconds"]) for each in tolerations] == [
        ("node.kubernetes.io/not-ready", 300),
        ("node.kubernetes.io/unreachable", 300),
    ]


def test_a_pod_that_tolerates_everything_needs_no_more(api, make_pod):
    mine = [{"operator": "Exists"}]
    assert api.create("pods", make_pod(tolerations=mine))["spec"]["tolerations"] == mine


def test_a_pods_own_patience_is_left_alone(api, make_pod):
    own = {
        "key": "node.kubernetes.io/not-ready",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 5,
    }
    tolerations = api.create("pods", make_pod(tolerations=[own]))["spec"]["tolerations"]
    assert [each["tolerationSeconds"] for each in tolerations] == [5, 300]


def test_the_class_gives_the_priority(api, make_pod):
    api.create(
        "priorityclasses.scheduling.k8s.io",
        {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"},
    )
    spec = api.create("pods", make_pod(priorityClassName="high"))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")


def test_a_replacement_without_a_priority_keeps_it(api, make_pod):
    api.create("pods", make_pod(priorityClassName="system-node-critical"))
    replacement = make_pod(
        priorityClassName="system-node-critical",
        serviceAccountName="default",
        tolerations=[{"key": "new", "operator": "Exists"}],
    )
    spec = api.update("pods", replacement)["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (2_000_001_000, "PreemptLowerPriority")
    assert len(spec["tolerations"]) == 3


def test_system_classes_exist_from_the_start(api, make_pod):
    pod = api.create("pods", make_pod(priorityClassName="system-node-critical"))
    assert pod["spec"]["priority"] == 2_000_001_000


def test_the_global_default_class_counts_for_pods_without_one(api, make_pod):
    body = {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True}
    api.create("priorityclasses.scheduling.k8s.io", body)
    spec = api.create("pods", make_pod())["spec"]
    assert (spec["priority"], spec["priorityClassName"]) == (7, "usual")
    with pytest.raises(Forbidden, match="PriorityClass usual is already marked as default"):
        api.create("priorityclasses.scheduling.k8s.io", {**body, "metadata": {"name": "another"}})


def test_a_class_that_does_not_exist_refuses_the_pod(api, make_pod):
    with pytest.raises(Forbidden, match="no PriorityClass with name nope was found"):
        api.create("pods", make_pod(priorityClassName="nope"))


def test_a_priority_of_ones_own_making_is_refused(api, make_pod):
    with pytest.raises(Forbidden, match="the integer value of priority"):
        api.create("pods", make_pod(priority=99))


def test_a_gated_pod_says_so(api, make_pod):
    pod = api.create("pods", make_pod(schedulingGates=[{"name": "example.com/wait"}]))
    condition = pod["status"]["conditions"][0]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "PodScheduled",
        "False",
        "SchedulingGated",
    )


def test_match_label_keys_become_requirements_on_the_pods_own_values(api, make_pod):
    term = {
        "labelSelector": {"matchLabels": {"app": "web"}},
        "topologyKey": "zone",
        "matchLabelKeys": ["version", "absent"],
        "mismatchLabelKeys": ["tenant"],
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
        "matchLabelKeys": ["version"],
    }
    pod = make_pod(
        affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        topologySpreadConstraints=[spread],
    )
    pod["metadata"]["labels"] = {"version": "2", "tenant": "t"}
    spec = api.create("pods", pod)["spec"]
    stored = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0][
        "labelSelector"
    ]
    assert stored["matchExpressions"] == [
        {"key": "version", "operator": "In", "values": ["2"]},
        {"key": "tenant", "operator": "NotIn", "values": ["t"]},
    ]
    assert spec["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"] == [
        {"key": "version", "operator": "In", "values": ["2"]}
    ]


def container(requests: dict | None = None, limits: dict | None = None) -> dict:
    return {"resources": {"requests": requests or {}, "limits": limits or {}}}


BOTH = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        pytest.param([container()], "BestEffort", id="nothing asked"),
        pytest.param([container(BOTH, BOTH)], "Guaranteed", id="everything asked is the limit"),
        pytest.param([container(BOTH)], "Burstable", id="no limits"),
        pytest.param(
            [container({"cpu": "1"}, {"cpu": "1"})], "Burstable", id="memory without a limit"
        ),
        pytest.param([container(BOTH, BOTH), container()], "Burstable", id="one container without"),
        pytest.param(
            [container({"example.com/gpu": "1"}, {"example.com/gpu": "1"})],
            "BestEffort",
            id="devices do not count",
        ),
    ],
)
def test_the_quality_of_service_follows_from_requests_and_limits(containers, expected):
    assert qos_class({"containers": containers}) == expected


def test_host_network_makes_container_ports_host_ports(api, make_pod):
    ports = [{"containerPort": 80}]
    pod = api.create(
        "pods", make_pod(hostNetwork=True, containers=[{"name": "c", "image": "i", "ports": ports}])
    )
    assert pod["spec"]["containers"][0]["ports"] == [
        {"containerPort": 80, "hostPort": 80, "protocol": "TCP"}
    ]


def test_a_job_finds_its_pods_by_its_own_uid(api):
    spec = {
        "template": {
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
        }
    }
    job = api.create(
        "jobs.batch", {"metadata": {"name": "j", "namespace": "default"}, "spec": spec}
    )
    uid = job["metadata"]["uid"]
    assert job["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert job["spec"]["template"]["metadata"]["labels"]["job-name"] == "j"


def test_a_claim_without_a_class_gets_the_default_class(api):
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    api.create(
        "storageclasses.storage.k8s.io",
        {
            "metadata": {"name": "fast", "annotations": annotations},
            "provisioner": "example.com/disk",
        },
    )
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for name, stated, expected in (("a", None, "fast"), ("b", "", ""), ("c", "slow", "slow")):
        body = {"metadata": {"name": name, "namespace": "default"}, "spec": dict(spec)}
        if stated is not None:
            body["spec"]["storageClassName"] = stated
        assert (
            api.create("persistentvolumeclaims", body)["spec"].get("storageClassName") == expected
        )


def test_services_get_addresses_and_keep_them(api):
    body = {
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {"ports": [{"port": 80}], "type": "NodePort"},
    }
    created = api.create("services", body)
    assert created["spec"]["clusterIP"].startswith("10.96.")
    assert created["spec"]["ports"][0]["targetPort"] == 80
    assert 30000 <= created["spec"]["ports"][0]["nodePort"] < 32768
    updated = api.update(
        "services", {**body, "spec": {**body["spec"], "sessionAffinity": "ClientIP"}}
    )
    assert updated["spec"]["clusterIP"] == created["spec"]["clusterIP"]


def test_a_service_loses_what_its_new_type_does_not_have(api):
    spec = {"ports": [{"name": "a", "port": 80}], "type": "ClusterIP"}
    body = {"metadata": {"name": "s", "namespace": "default"}, "spec": spec}
    address = api.create("services", body)["spec"]["clusterIP"]

    def change(**spec):
        return api.patch("services", "default", "s", {"spec": spec})["spec"]

    balanced = change(type="LoadBalancer")
    port = balanced["ports"][0]["nodePort"]
    assert (balanced["clusterIP"], balanced["externalTrafficPolicy"]) == (address, "Cluster")
    assert (
        change(type="NodePort", ports=[{"name": "a", "port": 81}])["ports"][0]["nodePort"] == port
    )
    plain = change(type="ClusterIP")
    assert plain["clusterIP"] == address
    assert not {"externalTrafficPolicy", "allocateLoadBalancerNodePorts"} & plain.keys()
    assert "nodePort" not in plain["ports"][0]
    named = change(type="ExternalName", externalName="example.com")
    assert not {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} & named.keys()
    assert change(type="ClusterIP", externalName=None)["clusterIP"]


@pytest.fixture
def published(api):
    publish(api.registry, "PEM", "127.0.0.1", 6443)
    return api


def mounts(pod):
    return {
        container["name"]: [mount["name"] for mount in container.get("volumeMounts", ())]
        for container in pod["spec"]["containers"]
    }


def test_the_token_of_the_account_is_mounted(published, make_pod):
    other = {"name": "own", "mountPath": MOUNT_PATH}
    containers = [
        {"name": "plain", "image": "i"},
        {"name": "own", "image": "i", "volumeMounts": [other]},
    ]
    pod = published.create(
        "pods", make_pod(containers=containers, volumes=[{"name": "own", "emptyDir": {}}])
    )
    [_, volume] = pod["spec"]["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    assert mounts(pod) == {"plain": [volume["name"]], "own": ["own"]}


@pytest.mark.parametrize(
    ("account", "own", "mounted"), [(False, None, False), (False, True, True), (None, False, False)]
)
def test_the_token_can_be_declined(published, make_pod, account, own, mounted):
    body = {"metadata": {"name": "sa", "namespace": "default"}, "imagePullSecrets": [{"name": "s"}]}
    published.create("serviceaccounts", {**body, "automountServiceAccountToken": account})
    spec = {} if own is None else {"automountServiceAccountToken": own}
    pod = published.create("pods", make_pod(serviceAccountName="sa", **spec))
    assert bool(pod["spec"].get("volumes")) is mounted
    assert pod["spec"]["imagePullSecrets"] == [{"name": "s"}]


def test_a_pod_needs_its_account(published, make_pod):
    words = 'error looking up service account default/nobody: serviceaccounts "nobody" not found'
    with pytest.raises(Forbidden, match=words):
        published.create("pods", make_pod(serviceAccountName="nobody"))


def test_the_api_server_has_endpoints(published):
    [subset] = published.get("endpoints", "default", "kubernetes")["subsets"]
    assert (subset["addresses"], subset["ports"][0]["port"]) == ([{"ip": "127.0.0.1"}], 6443)
    endpoint_slice = published.get("endpointslices.discovery.k8s.io", "default", "kubernetes")
    assert endpoint_slice["endpoints"][0]["addresses"] == ["127.0.0.1"]


def test_a_new_namespace_has_a_name_label_and_an_account(api):
    namespace = api.create("namespaces", {"metadata": {"name": "team"}})
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "team"}
    assert namespace["status"] == {"phase": "Active"}
    assert api.get("serviceaccounts", "team", "default")


def test_plain_texts_of_a_secret_are_encoded(api):
    body = {
        "metadata": {"name": "s", "namespace": "default"},
        "stringData": {"password": "hunter2"},
    }
    secret = api.create("secrets", body)
    assert secret["data"] == {"password": "aHVudGVyMg=="}
    assert "stringData" not in secret
