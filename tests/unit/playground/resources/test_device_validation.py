"""Rules of resource.k8s.io: defaults, refusals in upstream's words, and what a status write may
change.
"""

from __future__ import annotations

import pytest

from kubesched.base.errors import BadRequest, Invalid

CLAIMS = "resourceclaims.resource.k8s.io"
TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"
CLASSES = "deviceclasses.resource.k8s.io"
SHARE = "11111111-2222-4333-8444-555555555555"


def claim(*requests: dict, **devices: object) -> dict:
    wanted = list(requests) or [request()]
    return {
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {"requests": wanted, **devices}},
    }


def request(name: str = "gpu", **exactly: object) -> dict:
    return {"name": name, "exactly": {"deviceClassName": "gpu", **exactly}}


def template(**spec: object) -> dict:
    return {"metadata": {"name": "t", "namespace": "default"}, "spec": {"spec": spec}}


def resource_slice(*devices: dict, **spec: object) -> dict:
    body = {
        "driver": "gpu.example.com",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n",
        "devices": list(devices) or [{"name": "gpu-0"}],
        **spec,
    }
    return {
        "metadata": {"name": "s"},
        "spec": {key: value for key, value in body.items() if value is not None},
    }


def device(name: str = "gpu-0", **fields: object) -> dict:
    return {"name": name, **fields}


def device_class(**spec: object) -> dict:
    return {"metadata": {"name": "gpu"}, "spec": spec}


def cel(expression: str) -> list[dict]:
    return [{"cel": {"expression": expression}}]


def policy(**fields: object) -> dict:
    return device(
        allowMultipleAllocations=True,
        capacity={"memory": {"value": "8Gi", "requestPolicy": fields}},
    )


REFUSED = [
    (CLAIMS, claim({"name": "a"}), "spec.devices.requests[0]: Required value: exactly one of"),
    (
        CLAIMS,
        claim({**request(), "firstAvailable": [{"name": "x", "deviceClassName": "gpu"}]}),
        "spec.devices.requests[0]: Invalid value: null: exactly one of `exactly` or "
        "`firstAvailable`"
        " is required, but multiple fields are set",
    ),
    (CLAIMS, claim(request("A")), "spec.devices.requests[0].name: Invalid value"),
    (
        CLAIMS,
        claim(request(), request()),
        'spec.devices.requests[1]: Duplicate value: "gpu"',
    ),
    (
        CLAIMS,
        claim(*[request(f"r{i}") for i in range(33)]),
        "spec.devices.requests: Too many: 33: must have at most 32 items",
    ),
    (
        CLAIMS,
        claim(request(deviceClassName="")),
        "spec.devices.requests[0].exactly.deviceClassName: Required value",
    ),
    (
        CLAIMS,
        claim(request(allocationMode="All", count=2)),
        "spec.devices.requests[0].exactly.count: Invalid value: 2: must not be specified when"
        " allocationMode is 'All'",
    ),
    (
        CLAIMS,
        claim(request(count=-1)),
        "exactly.count: Invalid value: -1: must be greater than zero",
    ),
    (
        CLAIMS,
        claim(request(allocationMode="Some")),
        'exactly.allocationMode: Unsupported value: "Some": supported values: "All", "ExactCount"',
    ),
    (
        CLAIMS,
        claim(request(selectors=[{}])),
        "exactly.selectors[0].cel: Required value",
    ),
    (
        CLAIMS,
        claim(request(selectors=cel("device.nothing"))),
        "compilation failed: ERROR: <input>:1:7: undefined field 'nothing'",
    ),
    (
        CLAIMS,
        claim(request(selectors=cel("1 + 1"))),
        "must evaluate to bool or the unknown type, not int",
    ),
    (
        CLAIMS,
        claim(request(selectors=cel("true" + " " * 10240))),
        "exactly.selectors[0].cel.expression: Too long: may not be more than 10240 bytes",
    ),
    (
        CLAIMS,
        claim(request(tolerations=[{"operator": "Exists", "value": "x"}])),
        'tolerations[0].value: Invalid value: "x": must be empty for operator `Exists`',
    ),
    (
        CLAIMS,
        claim(request(tolerations=[{}])),
        "tolerations[0].operator: Required value",
    ),
    (
        CLAIMS,
        claim(constraints=[{"requests": ["other"], "matchAttribute": "a.com/b"}]),
        'constraints[0].requests[0]: Invalid value: "other": must be the name of a request',
    ),
    (
        CLAIMS,
        claim(constraints=[{"matchAttribute": "b"}]),
        "a fully qualified name must be a domain and a name separated by a slash",
    ),
    (CLAIMS, claim(constraints=[{}]), "spec.devices.constraints[0]: Required value"),
    (CLAIMS, claim(config=[{}]), "spec.devices.config[0].opaque: Required value"),
    (
        CLAIMS,
        claim(config=[{"opaque": {"driver": "d", "parameters": "text"}}]),
        'opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object',
    ),
    (
        CLAIMS,
        claim(request(adminAccess=True)),
        "spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the"
        " `resource.kubernetes.io/admin-access: true` label on the containing namespace",
    ),
    (
        TEMPLATES,
        template(devices={"requests": [{"name": "a"}]}),
        "spec.spec.devices.requests[0]: Required value",
    ),
    (CLASSES, device_class(selectors=cel("device.")), "compilation failed: ERROR"),
    (
        CLASSES,
        device_class(extendedResourceName="cpu"),
        'extendedResourceName: Invalid value: "cpu": must be a valid extended resource name',
    ),
    (SLICES, resource_slice(driver=""), "spec.driver: Required value"),
    (
        SLICES,
        resource_slice(pool={"name": "n", "generation": -1}),
        "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
    ),
    (
        SLICES,
        resource_slice(nodeName=None),
        "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`,",
    ),
    (
        SLICES,
        resource_slice(allNodes=True),
        'spec: Invalid value: "{`nodeName`, `allNodes`}": exactly one of',
    ),
    (
        SLICES,
        resource_slice(sharedCounters=[{"name": "s", "counters": {"c": {"value": "1"}}}]),
        "only one of `sharedCounters` or `devices` is allowed",
    ),
    (
        SLICES,
        resource_slice(*[device(f"d{i}") for i in range(129)]),
        "spec.devices: Too many: 129: must have at most 128 items",
    ),
    (
        SLICES,
        resource_slice(
            device("first", taints=[{"key": "k", "effect": "NoSchedule"}]),
            *[device(f"d{i}") for i in range(64)],
        ),
        "spec.devices: Too many: 65: must have at most 64 items",
    ),
    (
        SLICES,
        resource_slice(device(attributes={"model": {}})),
        'attributes[model]: Invalid value: "": exactly one value must be specified',
    ),
    (
        SLICES,
        resource_slice(device(attributes={"v": {"version": "1.2"}})),
        "must be a string compatible with semver.org spec 2.0.0",
    ),
    (
        SLICES,
        resource_slice(device(attributes={"a-b": {"int": 1}})),
        "a valid C identifier must start with",
    ),
    (
        SLICES,
        resource_slice(device(attributes={f"a{i}": {"int": i} for i in range(33)})),
        "the total number of attributes and capacities must not exceed 32",
    ),
    (
        SLICES,
        resource_slice(device(nodeName="n")),
        "can only be set if `perDeviceNodeSelection` is set to true",
    ),
    (
        SLICES,
        resource_slice(device(), nodeName=None, perDeviceNodeSelection=True),
        "spec.devices[0]: Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes`",
    ),
    (
        SLICES,
        resource_slice(device(taints=[{"key": "k", "effect": "Sometimes"}])),
        'effect: Unsupported value: "Sometimes": supported values: "NoExecute", "NoSchedule", '
        '"None"',
    ),
    (
        SLICES,
        resource_slice(device(consumesCounters=[{"counterSet": "s"}])),
        "consumesCounters[0].counters: Required value",
    ),
    (
        SLICES,
        resource_slice(device(bindingConditions=["a"])),
        "bindingFailureConditions are required to use bindingConditions",
    ),
    (
        SLICES,
        resource_slice(device(capacity={"m": {"value": "1", "requestPolicy": {"default": "1"}}})),
        "requestPolicy: Forbidden: allowMultipleAllocations must be true",
    ),
    (
        SLICES,
        resource_slice(policy(default="1Gi", validValues=["2Gi", "1Gi"])),
        'validValues[1]: Invalid value: "1Gi": values must be sorted in ascending order',
    ),
    (
        SLICES,
        resource_slice(policy(default="1Gi", validValues=["2Gi", "16Gi"])),
        "option is larger than capacity value: 8Gi",
    ),
    (
        SLICES,
        resource_slice(policy(default="1Gi", validRange={"min": "2Gi"})),
        'validRange.default: Invalid value: "1Gi": default is less than min: 2Gi',
    ),
    (
        SLICES,
        resource_slice(policy(default="3Gi", validRange={"min": "2Gi", "step": "2Gi"})),
        'step: Invalid value: "3Gi": value is not a multiple of a given step (2Gi) from (2Gi)',
    ),
]


@pytest.mark.parametrize(("resource", "obj", "words"), REFUSED)
def test_refusals_name_field_and_reason(api, resource, obj, words):
    with pytest.raises(Invalid) as refusal:
        api.create(resource, obj)
    assert words in str(refusal.value)


def test_selectors_are_not_refused_by_their_estimated_cost(api):
    selectors = cel("lists.range(1000000).all(x, x > 0)")
    made = api.create(CLAIMS, claim(request(selectors=selectors)))
    assert made["spec"]["devices"]["requests"][0]["exactly"]["selectors"] == selectors


def test_an_unreadable_quantity_is_a_bad_request(api):
    with pytest.raises(BadRequest, match="quantities must match"):
        api.create(SLICES, resource_slice(device(capacity={"m": {"value": "much"}})))


def test_defaults_of_requests(api):
    alternatives = [
        {"name": "a", "deviceClassName": "x"},
        {"name": "b", "deviceClassName": "x", "allocationMode": "All"},
    ]
    made = api.create(CLAIMS, claim(request(), {"name": "any", "firstAvailable": alternatives}))
    first, second = made["spec"]["devices"]["requests"]
    assert first["exactly"]["allocationMode"] == "ExactCount"
    assert first["exactly"]["count"] == 1
    assert second["firstAvailable"][0]["count"] == 1
    assert "count" not in second["firstAvailable"][1]


def test_taints_get_their_time_and_quantities_their_canonical_form(api, clock):
    obj = resource_slice(
        device(
            taints=[{"key": "k", "effect": "NoExecute"}], capacity={"memory": {"value": "0.5Gi"}}
        )
    )
    made = api.create(SLICES, obj)["spec"]["devices"][0]
    assert made["taints"][0]["timeAdded"]
    assert made["capacity"]["memory"]["value"] == "512Mi"


def test_the_status_sent_with_a_new_claim_is_dropped(api):
    made = api.create(CLAIMS, {**claim(), "status": {"allocation": {}}})
    assert made["status"] == {}


@pytest.mark.parametrize(("resource", "obj"), [(CLAIMS, claim()), (TEMPLATES, template())])
def test_specs_of_claims_and_templates_do_not_change(api, resource, obj):
    made = api.create(resource, obj)
    name = made["metadata"]["name"]
    api.patch(resource, "default", name, {"metadata": {"labels": {"a": "b"}}})
    target = made["spec"].get("spec", made["spec"])
    target = {"devices": {"requests": [*(target["devices"].get("requests") or []), request("n")]}}
    patch = {"spec": {"spec": target} if resource == TEMPLATES else target}
    with pytest.raises(Invalid, match=r"spec: Invalid value: .*: field is immutable"):
        api.patch(resource, "default", name, patch)


def test_driver_pool_and_node_of_a_slice_do_not_change(api):
    api.create(SLICES, resource_slice())
    for change in ({"driver": "other"}, {"pool": {"name": "other"}}, {"nodeName": "other"}):
        with pytest.raises(Invalid, match="field is immutable"):
            api.patch(SLICES, None, "s", {"spec": change})
    changed = api.patch(SLICES, None, "s", {"spec": {"pool": {"generation": 2}}})
    assert changed["metadata"]["generation"] == 2


def test_slices_are_found_by_node_and_driver(api):
    api.create(SLICES, resource_slice())
    for selector, count in (
        ("spec.nodeName=n", 1),
        ("spec.nodeName=m", 0),
        ("spec.driver=gpu.example.com", 1),
        ("spec.driver!=gpu.example.com", 0),
    ):
        assert len(api.list(SLICES, field_selector=selector)[0]) == count


# -- status ---------------------------------------------------------------------------------------


def allocation(**result: object) -> dict:
    given = {"request": "gpu", "driver": "gpu.example.com", "pool": "n", "device": "gpu-0"}
    return {"devices": {"results": [{**given, **result}]}}


def write(api, **status: object) -> dict:
    current = api.get(CLAIMS, "default", "c")
    return api.update_status(CLAIMS, {**current, "status": status})


def pod_reference(uid: str) -> dict:
    return {"resource": "pods", "name": f"pod-{uid}", "uid": uid}


@pytest.fixture
def claim_api(api):
    api.create(CLAIMS, claim())
    return api


def test_a_reservation_needs_an_allocation(claim_api):
    with pytest.raises(Invalid, match="may not be specified when `allocated` is not set"):
        write(claim_api, reservedFor=[pod_reference("u")])


def test_an_allocation_is_set_once_and_may_be_removed(claim_api):
    write(claim_api, allocation=allocation())
    with pytest.raises(Invalid, match=r"status.allocation: Invalid value: .*: field is immutable"):
        write(claim_api, allocation=allocation(device="gpu-1"))
    assert write(claim_api)["status"] == {}
    write(claim_api, allocation=allocation(device="gpu-1"))


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"request": "other"}, "results[0].request: Invalid value"),
        ({"driver": ""}, "results[0].driver: Required value"),
        ({"device": "A"}, "results[0].device: Invalid value"),
        ({"shareID": "x"}, "uid must be in RFC 4122 normalized form"),
        ({"adminAccess": True}, "admin access to devices requires"),
    ],
)
def test_results_are_checked(claim_api, result, words):
    with pytest.raises(Invalid) as refusal:
        write(claim_api, allocation=allocation(**result))
    assert words in str(refusal.value)


def test_admin_access_needs_the_label_on_the_namespace(api):
    labels = {"resource.kubernetes.io/admin-access": "true"}
    api.patch("namespaces", None, "default", {"metadata": {"labels": labels}})
    api.create(CLAIMS, claim(request(adminAccess=True)))
    write(api, allocation=allocation(adminAccess=True))


def test_reservations_merge_by_uid(claim_api):
    write(claim_api, allocation=allocation(), reservedFor=[pod_reference("a")])

    def patch(body):
        changed = claim_api.patch(CLAIMS, "default", "c", body, "strategic", "status")
        return [entry["uid"] for entry in changed["status"].get("reservedFor") or ()]

    assert patch({"status": {"reservedFor": [pod_reference("b")]}}) == ["b", "a"]
    assert patch({"status": {"reservedFor": [{"$patch": "delete", "uid": "a"}]}}) == ["b"]
    with pytest.raises(Invalid):
        patch({"metadata": {"uid": "another"}, "status": {"reservedFor": [pod_reference("c")]}})


def test_no_new_reservation_once_the_claim_is_being_deleted(claim_api):
    finalizer = {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}
    claim_api.patch(CLAIMS, "default", "c", finalizer)
    write(claim_api, allocation=allocation(), reservedFor=[pod_reference("a"), pod_reference("b")])
    claim_api.delete(CLAIMS, "default", "c")
    with pytest.raises(Invalid, match="new entries may not be added"):
        write(claim_api, allocation=allocation(), reservedFor=[pod_reference("c")])
    write(claim_api, allocation=allocation(), reservedFor=[pod_reference("b")])
    write(claim_api)
    claim_api.patch(CLAIMS, "default", "c", {"metadata": {"finalizers": None}})
    assert claim_api.list(CLAIMS)[0] == []


def test_the_status_of_released_devices_is_dropped(claim_api):
    entry = {"driver": "gpu.example.com", "pool": "n", "device": "gpu-0"}
    with pytest.raises(Invalid, match="must be an allocated device in the claim"):
        write(claim_api, devices=[entry])
    write(claim_api, allocation=allocation(), devices=[entry])
    assert write(claim_api, devices=[entry])["status"] == {}


# -- pods -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "used", "words"),
    [
        ([{"name": "a"}], [], "must specify one of: `resourceClaimName`"),
        (
            [{"name": "a", "resourceClaimName": "x", "resourceClaimTemplateName": "y"}],
            [],
            "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
        ),
        (
            [{"name": "a", "resourceClaimName": "x"}, {"name": "a", "resourceClaimName": "y"}],
            [],
            'spec.resourceClaims[1].name: Duplicate value: "a"',
        ),
        (
            [{"name": "a", "resourceClaimName": "x"}],
            [{"name": "b"}],
            'claims[0]: Not found: "b": must be one of the names in pod.spec.resourceClaims: a',
        ),
        ([], [{"name": "b"}], "must be one of the names in pod.spec.resourceClaims which is empty"),
        (
            [{"name": "a", "resourceClaimName": "x"}],
            [{"name": "a", "request": "r"}, {"name": "a"}],
            'claims[1]: Duplicate value: "a"',
        ),
    ],
)
def test_claims_of_pods_are_checked(api, make_pod, claims, used, words):
    container = {"name": "main", "image": "app:1", "resources": {"claims": used}}
    with pytest.raises(Invalid) as refusal:
        api.create("pods", make_pod(resourceClaims=claims, containers=[container]))
    assert words in str(refusal.value)
