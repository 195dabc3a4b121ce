"""A cluster is of one Kubernetes release: what its API server answers in 1.37, and beside it in
1.36.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kubesched.base.errors import Invalid
from kubesched.config import features
from kubesched.playground.client.local import LocalApi
from kubesched.playground.server.api_server import ApiServer
from tests.unit.playground.conftest import Http

SLICES = "resourceslices.resource.k8s.io"


@pytest.fixture
def clusters(clock):
    """In-process clients of a cluster of each release."""
    return {
        version: LocalApi.in_memory(
            clock=clock, rng=random.Random(7), gates=features.defaults(version)
        )
        for version in ("1.36", "1.37")
    }


def http_of(api, clock):
    return Http(ApiServer(api.registry, clock=clock, rng=random.Random(7), token="secret"))


@pytest.mark.parametrize(
    ("version", "release", "oldest"), [("1.36", "v1.36.4", "35"), ("1.37", "v1.37.0", "36")]
)
async def test_everything_that_states_a_version_states_the_release(
    clusters, clock, version, release, oldest
):
    http = http_of(clusters[version], clock)
    stated = await http.get("/version")
    assert stated["gitVersion"] == release
    minor = version.removeprefix("1.")
    parts = [stated[key] for key in ("major", "minor", "emulationMajor", "emulationMinor")]
    assert parts == ["1", minor, "1", minor]
    assert (stated["minCompatibilityMajor"], stated["minCompatibilityMinor"]) == ("1", oldest)
    for path in ("/openapi/v2", "/openapi/v3/api/v1"):
        assert (await http.get(path))["info"]["version"] == release


# -- pod-level resources --------------------------------------------------------------------------


def pod(resources, *containers, init=()):
    def listed(entries, prefix):
        return [
            {"name": f"{prefix}{index}", "image": "i", "resources": entry}
            for index, entry in enumerate(entries)
        ]

    spec = {"containers": listed(containers, "c"), "initContainers": listed(init, "i")}
    return {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {**spec, "resources": resources},
    }


REQUEST = {"requests": {"cpu": "1"}}
LIMIT = {"limits": {"cpu": "2", "memory": "1Gi"}}


@pytest.mark.parametrize(
    ("obj", "before", "now", "qos"),
    [
        pytest.param(
            pod({"limits": {"cpu": "4"}}, REQUEST, REQUEST),
            {"limits": {"cpu": "4"}, "requests": {"cpu": "2"}},
            {"limits": {"cpu": "4"}, "requests": {"cpu": "2"}},
            ("Burstable", "Burstable"),
            id="the sum of the containers beside a limit",
        ),
        pytest.param(
            pod({"limits": {"cpu": "4"}}, {}),
            {"limits": {"cpu": "4"}, "requests": {"cpu": "4"}},
            {"limits": {"cpu": "4"}, "requests": {"cpu": "4"}},
            ("Burstable", "Burstable"),
            id="the limit if no container asks",
        ),
        pytest.param(
            pod(REQUEST, {"requests": {"memory": "1Gi"}}),
            {"requests": {"cpu": "1"}},
            {"requests": {"cpu": "1", "memory": "1Gi"}},
            ("Burstable", "Burstable"),
            id="requests without limits",
        ),
        pytest.param(
            pod({"requests": {"cpu": "4"}}, LIMIT, LIMIT),
            {"requests": {"cpu": "4"}},
            {"requests": {"cpu": "4", "memory": "2Gi"}, "limits": {"cpu": "4", "memory": "2Gi"}},
            ("Burstable", "Guaranteed"),
            id="limits that all containers have",
        ),
        pytest.param(
            pod({"requests": {"cpu": "9"}}, LIMIT, {"limits": {"cpu": "2"}}),
            {"requests": {"cpu": "9"}},
            {"requests": {"cpu": "9", "memory": "1Gi"}, "limits": {"cpu": "9"}},
            ("Burstable", "Burstable"),
            id="at least the request, and not what one container lacks",
        ),
        pytest.param(
            pod(REQUEST, {"limits": {"hugepages-2Mi": "4Mi"}, **REQUEST}, init=[{}]),
            {
                "requests": {"cpu": "1", "hugepages-2Mi": "4Mi"},
                "limits": {"hugepages-2Mi": "4Mi"},
            },
            {
                "requests": {"cpu": "1", "hugepages-2Mi": "4Mi"},
                "limits": {"hugepages-2Mi": "4Mi"},
            },
            ("Burstable", "Burstable"),
            id="huge pages",
        ),
        pytest.param(
            pod({"requests": {"memory": "1Gi"}}, {"limits": {"cpu": "1", "memory": "1Gi"}}),
            {"requests": {"memory": "1Gi"}},
            {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
            ("Burstable", "Guaranteed"),
            id="completed resources decide about the class",
        ),
        pytest.param(pod({}, REQUEST), {}, {}, ("Burstable", "Burstable"), id="none at all"),
    ],
)
def test_pod_level_resources_are_completed(clusters, obj, before, now, qos):
    made = [clusters[version].create("pods", obj) for version in ("1.36", "1.37")]
    assert [each["spec"].get("resources", {}) for each in made] == [before, now]
    assert tuple(each["status"]["qosClass"] for each in made) == qos


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        (
            pod(REQUEST, LIMIT, LIMIT),
            'spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to'
            " aggregate container requests of 4",
        ),
        (
            pod({"limits": {"cpu": "1"}}, {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}),
            'spec.resources.containers[0][cpu].limits: Invalid value: "2": must be less than or'
            " equal to pod limits of 1",
        ),
        (
            pod(
                {"limits": {"cpu": "1", "hugepages-2Mi": "2Mi"}},
                {"limits": {"cpu": "1", "hugepages-2Mi": "4Mi"}},
            ),
            'spec.resources.limits[hugepages-2Mi]: Invalid value: "2Mi": must be greater than or'
            " equal to aggregate container limits of 4Mi",
        ),
        (
            pod({"requests": {"ephemeral-storage": "1"}}, {}),
            "spec.resources.requests[ephemeral-storage]: Unsupported value:"
            ' "ephemeral-storage": supported values: "cpu", "hugepages-", "memory"',
        ),
        (
            pod(REQUEST, {"limits": {"hugepages-2Mi": "4Mi"}}),
            "spec.containers[0].resources: Forbidden: HugePages require cpu or memory",
        ),
    ],
)
@pytest.mark.parametrize("version", ["1.36", "1.37"])
def test_a_pod_covers_its_containers(clusters, version, obj, words):
    with pytest.raises(Invalid) as refusal:
        clusters[version].create("pods", obj)
    assert words in str(refusal.value)


def test_a_container_that_a_limit_range_completes_counts(clusters):
    limits = [{"type": "Container", "default": {"cpu": "2"}}]
    for version, shown in (("1.36", None), ("1.37", {"cpu": "2"})):
        api = clusters[version]
        api.create(
            "limitranges", {"metadata": {"name": "l"}, "spec": {"limits": limits}}, "default"
        )
        made = api.create("pods", pod({"requests": {"cpu": "2"}}, {}))
        assert made["spec"]["resources"].get("limits") == shown


def test_an_update_without_pod_level_resources_keeps_them(clusters):
    api = clusters["1.37"]
    made = api.create("pods", pod(REQUEST, {}))
    spec = {key: value for key, value in made["spec"].items() if key != "resources"}
    metadata = {**made["metadata"], "labels": {"a": "b"}}
    kept = api.update("pods", {"metadata": metadata, "spec": spec})
    assert kept["spec"]["resources"] == REQUEST
    assert kept["metadata"]["labels"] == {"a": "b"}


def test_a_resize_completes_pod_level_resources(clusters):
    api = clusters["1.37"]
    api.create("pods", pod({"requests": {"cpu": "1"}}, {"limits": {"cpu": "1"}}))
    patch = {"spec": {"resources": {"requests": {"cpu": "3"}, "limits": {"cpu": None}}}}
    resized = api.patch("pods", "default", "p", patch, subresource="resize")
    assert resized["spec"]["resources"] == {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}


# -- fields behind gates --------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "is_kept"), [("1.36", False), ("1.37", True)])
def test_a_driver_that_pods_wait_for(clusters, version, is_kept):
    driver = {"metadata": {"name": "csi.lim"}, "spec": {"preventPodSchedulingIfMissing": True}}
    made = clusters[version].create("csidrivers.storage.k8s.io", driver)
    assert ("preventPodSchedulingIfMissing" in made["spec"]) is is_kept


async def test_fields_of_gates_that_are_off_are_dropped(clusters, clock):
    counters = {"counterSet": "c", "counters": {"m": {"value": "1"}}, "compatibilityGroups": ["a"]}
    spec = {
        "driver": "d.example.com",
        "nodeName": "n",
        "pool": {"name": "n", "generation": 0, "resourceSliceCount": 1},
        "partitionTypeAttribute": "d.example.com/type",
        "devices": [{"name": "d", "consumesCounters": [counters]}],
    }
    path = "/apis/resource.k8s.io/v1/resourceslices?fieldValidation=Strict"
    http = http_of(clusters["1.37"], clock)
    made = await http.post(path, {"metadata": {"name": "s"}, "spec": spec})
    assert "partitionTypeAttribute" not in made["spec"]
    [kept] = made["spec"]["devices"][0]["consumesCounters"]
    assert sorted(kept) == ["counterSet", "counters"]


# -- device taint rules ---------------------------------------------------------------------------

RULE = {
    "metadata": {"name": "r"},
    "spec": {
        "deviceSelector": {"driver": "d.example.com"},
        "taint": {"key": "k", "effect": "NoSchedule"},
    },
}


async def test_device_taint_rules_are_stable(clusters, clock):
    http = http_of(clusters["1.37"], clock)
    [group] = [
        group for group in (await http.get("/apis"))["groups"] if group["name"] == "resource.k8s.io"
    ]
    assert [version["version"] for version in group["versions"]] == ["v1"]
    path = "/apis/resource.k8s.io/v1/devicetaintrules"
    made = await http.post(path, RULE)
    assert (made["apiVersion"], made["metadata"]["generation"]) == ("resource.k8s.io/v1", 1)
    assert made["spec"]["taint"]["timeAdded"] == made["metadata"]["creationTimestamp"]
    made["status"] = {"conditions": [CONDITION]}
    status, answer = await http.call("PUT", f"{path}/r/status", made)
    assert (status, answer["status"]) == (200, {"conditions": [CONDITION]})
    answer["status"]["conditions"] = [{**CONDITION, "type": f"C{index}"} for index in range(9)]
    status, answer = await http.call("PUT", f"{path}/r/status", answer)
    assert (status, answer["details"]["causes"][0]["field"]) == (422, "status.conditions")
    status, answer = await http.call("DELETE", f"{path}/r")
    assert (status, answer["kind"], answer["status"]) == (200, "Status", "Success")


CONDITION = {
    "type": "EvictionInProgress",
    "status": "False",
    "reason": "NoEviction",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


@pytest.mark.parametrize("is_on", [False, True])
async def test_device_taint_rules_were_behind_a_gate(clock, is_on):
    gates = replace(features.defaults("1.36"), DRADeviceTaintRules=is_on)
    api = LocalApi.in_memory(clock=clock, rng=random.Random(7), gates=gates)
    http = http_of(api, clock)
    path = "/apis/resource.k8s.io/{}/devicetaintrules"
    assert (await http.call("GET", path.format("v1")))[0] == 404
    status, _ = await http.call("POST", path.format("v1beta2"), RULE)
    assert status == (201 if is_on else 404)
    if is_on:
        status, answer = await http.call("DELETE", path.format("v1beta2") + "/r")
        assert (status, answer["kind"]) == (200, "DeviceTaintRule")


# -- ranges of capacity ---------------------------------------------------------------------------

_NOT_ZERO = 'step: Invalid value: "0": must be greater than zero'
_NOT_NEGATIVE = "must be greater than or equal to 0"
_NO_MULTIPLE = "value is not a multiple of a given step"
_TOO_LARGE = "must not be larger than 9223372036854775807"


@pytest.mark.parametrize(
    ("default", "bounds", "before", "now"),
    [
        ("1", {"min": "2"}, ["min"], ["default"]),
        ("9", {"min": "2", "max": "8"}, ["max"], ["default"]),
        ("2", {"min": "2", "step": "0"}, [_NO_MULTIPLE], [_NOT_ZERO]),
        ("2", {"min": "-2", "step": "2"}, [], [_NOT_NEGATIVE]),
        ("2", {"min": "2", "max": "10E", "step": "2"}, ["max is larger"], [_TOO_LARGE]),
        ("3", {"min": "2", "step": "2"}, [_NO_MULTIPLE], [_NO_MULTIPLE]),
        ("2500m", {"min": "500m", "step": "2"}, [], []),
        ("4", {"min": "2", "max": "8", "step": "2"}, [], []),
    ],
)
def test_valid_ranges(clusters, default, bounds, before, now):
    policy = {"default": default, "validRange": bounds}
    device = {
        "name": "d",
        "allowMultipleAllocations": True,
        "capacity": {"m": {"value": "8", "requestPolicy": policy}},
    }
    pool = {"name": "n", "resourceSliceCount": 1}
    spec = {"driver": "d.example.com", "nodeName": "n", "pool": pool, "devices": [device]}
    for version, words in (("1.36", before), ("1.37", now)):
        obj = {"metadata": {"name": "s"}, "spec": spec}
        if not words:
            clusters[version].create(SLICES, obj)
            continue
        with pytest.raises(Invalid) as refusal:
            clusters[version].create(SLICES, obj)
        for word in words:
            assert word in str(refusal.value), version


def test_slices_are_selected_by_pool(clusters):
    api = clusters["1.37"]
    for name in ("a", "b"):
        pool = {"name": name, "resourceSliceCount": 1}
        spec = {"driver": "d.example.com", "nodeName": "n", "pool": pool}
        api.create(SLICES, {"metadata": {"name": name}, "spec": spec})
    [found], _ = api.list(SLICES, field_selector="spec.pool.name=b")
    assert found["metadata"]["name"] == "b"


@pytest.mark.parametrize("version", ["1.36", "1.37"])
async def test_deleting_a_slice_answers_the_slice(clusters, clock, version):
    pool = {"name": "n", "resourceSliceCount": 1}
    spec = {"driver": "d.example.com", "nodeName": "n", "pool": pool}
    clusters[version].create(SLICES, {"metadata": {"name": "s"}, "spec": spec})
    path = "/apis/resource.k8s.io/v1/resourceslices/s"
    status, answer = await http_of(clusters[version], clock).call("DELETE", path)
    assert (status, answer["kind"], answer["metadata"]["name"]) == (200, "ResourceSlice", "s")
