"""Records: JSON names, defaults, nulls, and that nothing changes on a round trip."""

from __future__ import annotations

import json
import types
import typing

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubesched.api import codec, core_v1, kinds, meta, resource_v1, status
from kubesched.api.core_v1 import (
    Container,
    ContainerStatus,
    Node,
    NodeSystemInfo,
    Pod,
    PodSpec,
    PodStatus,
)
from kubesched.api.meta import LabelSelector, ObjectMeta, OwnerReference, Record, json_name

TOP_LEVEL = [kind.record for kind in kinds.KINDS if kind.has_record]
SENT_OR_RECEIVED = [
    *TOP_LEVEL,
    core_v1.Binding,
    status.Status,
    meta.DeleteOptions,
]


def named(record):
    return f"{record.__module__.removeprefix('kubesched.api.')}.{record.__name__}"


@pytest.mark.parametrize(
    ("attribute", "name"),
    [
        pytest.param("node_name", "nodeName", id="camel case"),
        pytest.param("uid", "uid", id="the first word stays lower"),
        pytest.param("host_ip", "hostIP", id="IP"),
        pytest.param("pod_ips", "podIPs", id="IPs"),
        pytest.param("pod_cidrs", "podCIDRs", id="CIDRs"),
        pytest.param("provider_id", "providerID", id="ID"),
        pytest.param("system_uuid", "systemUUID", id="UUID"),
        pytest.param("host_pid", "hostPID", id="PID"),
        pytest.param("host_ipc", "hostIPC", id="IPC"),
        pytest.param("disk_uri", "diskURI", id="URI"),
        pytest.param("target_wwns", "targetWWNs", id="WWNs"),
        pytest.param("api_version", "apiVersion", id="api at the start"),
        pytest.param("continue_", "continue", id="a Python keyword"),
        pytest.param("se_linux_mount", "seLinuxMount", id="SELinux"),
    ],
)
def test_json_names(attribute, name):
    assert json_name(attribute) == name


def records_within(record, seen=None):
    seen = set() if seen is None else seen
    if record not in seen:
        seen.add(record)
        for hint in typing.get_type_hints(record).values():
            for part in _parts(hint):
                if isinstance(part, type) and issubclass(part, Record):
                    records_within(part, seen)
    return seen


def _parts(hint):
    arguments = typing.get_args(hint)
    return [part for a in arguments for part in _parts(a)] if arguments else [hint]


ALL_RECORDS = sorted(
    {inner for record in SENT_OR_RECEIVED for inner in records_within(record)}, key=named
)


@pytest.mark.parametrize("record", ALL_RECORDS, ids=named)
def test_every_field_has_a_default_and_takes_null_unless_it_is_plain(record):
    assert isinstance(record(), record)
    for field in msgspec.structs.fields(record):
        plain = field.type in (str, int, bool, meta.RawQuantity) or (
            isinstance(field.type, type) and issubclass(field.type, Record)
        )
        takes_null = field.type is typing.Any or type(None) in typing.get_args(field.type)
        assert plain or takes_null, f"{record.__name__}.{field.name}: {field.type}"


@pytest.mark.parametrize("record", SENT_OR_RECEIVED, ids=named)
def test_an_encoded_object_says_what_it_is(record):
    written = json.loads(codec.encode(record()))
    assert written["kind"] == record.__name__
    assert written["apiVersion"] == record().api_version
    assert set(written) <= {"kind", "apiVersion"}


def test_defaults_are_left_out_and_empty_lists_are_not():
    pod = Pod(metadata=ObjectMeta(name="p"), spec=PodSpec(containers=[Container()], tolerations=[]))
    assert json.loads(codec.encode(pod)) == {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "p"},
        "spec": {"containers": [{}], "tolerations": []},
    }


def test_absent_and_empty_stay_apart():
    assert codec.decode(b"{}", PodSpec).tolerations is None
    assert codec.decode(b'{"tolerations":[]}', PodSpec).tolerations == []
    assert codec.decode(b"{}", LabelSelector).match_labels is None
    assert codec.decode(b'{"matchLabels":{}}', LabelSelector).match_labels == {}


def test_objects_of_a_list_know_what_they_are_without_being_told():
    node = codec.decode(b'{"metadata":{"name":"n"}}', Node)
    assert (node.kind, node.api_version) == ("Node", "v1")


def test_records_are_frozen_and_changed_by_replacement():
    pod = Pod()
    with pytest.raises(AttributeError):
        pod.spec = PodSpec()
    bound = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="n"))
    assert (pod.spec.node_name, bound.spec.node_name) == ("", "n")


def test_the_controller_is_the_owner_that_says_so():
    owners = [OwnerReference(name="a"), OwnerReference(name="b", controller=True)]
    assert ObjectMeta(owner_references=owners).controller() == owners[1]
    assert ObjectMeta(owner_references=owners[:1]).controller() is None
    assert ObjectMeta().controller() is None


A_POD_AS_SENT = b"""
{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0","generateName":"web-","namespace":"shop",
 "uid":"11111111-2222-3333-4444-555555555555","resourceVersion":"812","generation":3,
 "creationTimestamp":"2026-01-02T03:04:05Z","deletionTimestamp":null,"labels":{"app":"web"},"annotations":null,
 "ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"web","uid":"9","controller":true,
                     "blockOwnerDeletion":true}],
 "managedFields":[{"manager":"kubectl","operation":"Update","fieldsV1":{"f:spec":{}}}]},
 "spec":{"volumes":[{"name":"data","persistentVolumeClaim":{"claimName":"data-web-0"}},
                    {"name":"cfg","configMap":{"name":"cfg","defaultMode":420}},
                    {"name":"tok","projected":{"sources":[{"serviceAccountToken":{"path":"token"}}]}},
                    {"name":"scratch","ephemeral":{"volumeClaimTemplate":{"metadata":{"creationTimestamp":null},
                       "spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}}},
                    {"name":"old","gcePersistentDisk":{"pdName":"d","readOnly":true}}],
  "initContainers":[{"name":"side","image":"s:1","restartPolicy":"Always","resources":{}}],
  "containers":[{"name":"web","image":"web:1","env":[{"name":"X","value":"y"}],
    "ports":[{"containerPort":80,"hostPort":8080,"hostIP":"10.0.0.1","protocol":"TCP"}],
    "resources":{"requests":{"cpu":"100m","memory":"64Mi","example.com/gpu":1},"claims":[{"name":"c","request":"r"}]},
    "restartPolicyRules":[{"action":"RestartAllContainers","exitCodes":{"operator":"In","values":[42]}}],
    "livenessProbe":{"httpGet":{"path":"/","port":80}}}],
  "restartPolicy":"Always","terminationGracePeriodSeconds":30,"nodeSelector":{"disk":"ssd"},"hostNetwork":true,
  "affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":5,"preference":{
     "matchExpressions":[{"key":"gen","operator":"Gt","values":["3"]}]}}]}},
  "schedulerName":"default-scheduler","priority":1000,"preemptionPolicy":"PreemptLowerPriority","hostUsers":false,
  "tolerations":[{"key":"k","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],
  "topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule",
     "labelSelector":{"matchLabels":{"app":"web"}},"minDomains":2,"matchLabelKeys":["rev"],
     "nodeAffinityPolicy":"Honor","nodeTaintsPolicy":"Ignore"}],
  "schedulingGates":[{"name":"g"}],"resourceClaims":[{"name":"c","resourceClaimTemplateName":"t"}],
  "schedulingGroup":{"podGroupName":"pg"},"overhead":{"cpu":"10m"},"resources":{"requests":{"cpu":"1"}}},
 "status":{"observedGeneration":3,"phase":"Pending","conditions":[{"type":"PodScheduled","observedGeneration":3,
     "status":"False","lastProbeTime":null,"lastTransitionTime":"2026-01-02T03:04:06Z","reason":"Unschedulable"}],
  "nominatedNodeName":"n1","hostIP":"10.1.1.1","podIPs":[{"ip":"10.2.2.2"}],"startTime":null,"qosClass":"Burstable",
  "containerStatuses":[{"name":"web","state":{"waiting":{"reason":"X"}},"lastState":{},"ready":false,
     "restartCount":0,"image":"web:1","imageID":"","allocatedResources":{"cpu":"100m"},
     "resources":{"requests":{"cpu":"100m"}}}],
  "resourceClaimStatuses":[{"name":"c","resourceClaimName":"web-0-c"}],
  "extendedResourceClaimStatus":{"resourceClaimName":"x","requestMappings":[{"containerName":"web",
     "resourceName":"example.com/gpu","requestName":"container-0-request-0"}]}}}
"""


def test_a_pod_as_a_server_sends_it():
    pod = codec.decode(A_POD_AS_SENT, Pod)
    assert pod.metadata.creation_timestamp == "2026-01-02T03:04:05Z"
    assert pod.metadata.annotations is None
    spec, state = pod.spec, pod.status
    assert spec.volumes[0].persistent_volume_claim.claim_name == "data-web-0"
    assert spec.volumes[3].ephemeral is not None
    assert spec.volumes[4].gce_persistent_disk.read_only
    assert spec.init_containers[0].is_restartable_init()
    assert not spec.containers[0].is_restartable_init()
    assert spec.containers[0].ports[0].host_ip == "10.0.0.1"
    assert spec.containers[0].resources.requests["example.com/gpu"] == 1
    assert spec.containers[0].restart_policy_rules[0].action == "RestartAllContainers"
    assert spec.tolerations[0].toleration_seconds == 300
    assert spec.host_users is False
    assert spec.topology_spread_constraints[0].min_domains == 2
    assert spec.scheduling_group.pod_group_name == "pg"
    assert state.conditions[0].last_probe_time is None
    assert state.conditions[0].observed_generation == 3
    assert state.pod_ips[0].ip == "10.2.2.2"
    assert state.container_statuses[0].resources.requests == {"cpu": "100m"}
    assert (
        state.extended_resource_claim_status.request_mappings[0].request_name
        == "container-0-request-0"
    )
    assert codec.decode(codec.encode(pod), Pod) == pod


def test_a_node_as_a_server_sends_it():
    node = codec.decode(
        b'{"metadata":{"name":"n","labels":null},"spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24"],'
        b'"providerID":"x://n","taints":[{"key":"k","effect":"NoSchedule","timeAdded":null}],"unschedulable":true},'
        b'"status":{"allocatable":{"cpu":"4","pods":"110"},"addresses":[{"type":"InternalIP","address":"10.1.1.1"}],'
        b'"nodeInfo":{"machineID":"m","systemUUID":"s","bootID":"b","kubeletVersion":"v1.36.4"},'
        b'"images":[{"names":["a:1"],"sizeBytes":5}],"volumesAttached":[{"name":"v","devicePath":""}],'
        b'"declaredFeatures":["F"],"config":{"error":""}}}',
        Node,
    )
    assert node.spec.pod_cidrs == ["10.0.0.0/24"]
    assert node.spec.provider_id == "x://n"
    assert node.spec.taints[0].time_added is None
    assert node.status.node_info == NodeSystemInfo(
        machine_id="m", system_uuid="s", boot_id="b", kubelet_version="v1.36.4"
    )
    assert node.status.images[0].size_bytes == 5
    assert node.status.declared_features == ["F"]


def test_device_attributes_use_type_names_as_keys():
    attribute = codec.decode(b'{"int":3}', resource_v1.DeviceAttribute)
    assert attribute.int_value == 3
    assert codec.encode(resource_v1.DeviceAttribute(bool_value=False)) == b'{"bool":false}'
    sliced = codec.decode(
        b'{"spec":{"driver":"d","pool":{"name":"p","generation":1,"resourceSliceCount":1},"nodeName":"n",'
        b'"devices":[{"name":"gpu-0","attributes":{"model":{"string":"x"},"d/v":{"version":"1.2.3"}},'
        b'"capacity":{"memory":{"value":"8Gi","requestPolicy":{"default":"1Gi","validRange":{"min":"1Gi"}}}}}]}}',
        resource_v1.ResourceSlice,
    )
    device = sliced.spec.devices[0]
    assert device.attributes["d/v"].version_value == "1.2.3"
    assert device.capacity["memory"].request_policy.valid_range.min == "1Gi"


# -- round trips ---------------------------------------------------------------------------------

words = st.text(max_size=4)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)


def any_value(hint, depth):
    origin = typing.get_origin(hint)
    if hint is typing.Any:
        return json_values
    if origin in (types.UnionType, typing.Union):
        return st.one_of([any_value(part, depth) for part in typing.get_args(hint)])
    if origin is list:
        return st.lists(
            any_value(typing.get_args(hint)[0], depth - 1), max_size=2 if depth > 0 else 0
        )
    if origin is dict:
        value = any_value(typing.get_args(hint)[1], depth - 1)
        return st.dictionaries(words, value, max_size=2 if depth > 0 else 0)
    if isinstance(hint, type) and issubclass(hint, Record):
        return any_record(hint, depth - 1) if depth > 0 else st.just(hint())
    plain = {
        str: words,
        int: st.integers(-(2**63), 2**63 - 1),
        bool: st.booleans(),
        float: st.floats(allow_nan=False, allow_infinity=False),
        type(None): st.none(),
    }
    return plain[hint]


def any_record(record, depth=3):
    hints = typing.get_type_hints(record)
    fixed = ("kind", "api_version") if record in SENT_OR_RECEIVED else ()

    @st.composite
    def build(draw):
        free = [name for name in hints if name not in fixed]
        chosen = draw(st.lists(st.sampled_from(free), max_size=4, unique=True)) if free else []
        return record(**{name: draw(any_value(hints[name], depth)) for name in chosen})

    return build()


@pytest.mark.slow
@pytest.mark.parametrize("record", SENT_OR_RECEIVED, ids=named)
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_decoding_what_was_encoded_gives_the_same_record(record, data):
    original = data.draw(any_record(record))
    assert codec.decode(codec.encode(original), record) == original
    assert codec.convert(codec.to_json(original), record) == original


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_merged_changes_read_back_as_the_changed_record(data):
    record = data.draw(
        st.sampled_from([Pod, core_v1.PersistentVolumeClaim, resource_v1.ResourceClaim])
    )
    old = data.draw(any_record(record, 4))
    new = data.draw(any_record(record, 4))
    raw = {**codec.to_json(old), "unknown": {"kept": [1, 2]}}
    raw.setdefault("metadata", {})["managedFields"] = [{"manager": "m"}]
    preserved = codec.decode_preserved(json.dumps(raw), record)
    merged = preserved.merged_json(new)
    assert codec.convert(merged, record) == new
    assert merged["unknown"] == {"kept": [1, 2]}


def test_status_records_hold_together():
    waiting = ContainerStatus(
        name="a", state=core_v1.ContainerState(waiting=core_v1.ContainerStateWaiting())
    )
    assert PodStatus(container_statuses=[waiting]).container_statuses[0].state.running is None
