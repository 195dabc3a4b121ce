"""The allocator on one node: which devices are picked, in which order, and what is refused with
which words.
"""

import pytest
from dra_objects import (
    allocated_by,
    allocation,
    allocator,
    claim,
    device,
    device_class,
    exactly,
    first_available,
    node,
    picked,
    plain,
    resource_slice,
)
from msgspec import structs

from kubesched.api.resource_v1 import DeviceTaint
from kubesched.config.references import REFERENCES
from kubesched.plugins.dynamic_resources.structured.failures import (
    AllocationError,
    AllocationTimeout,
    InvalidPools,
)
from kubesched.plugins.dynamic_resources.structured.features import Features

AS_1_36 = Features(reference=REFERENCES["1.36"])


def allocate(slices, *claims, classes=None, allocated=(), features=None, on=None, is_late=None):
    made = allocator(slices, classes, allocated, features)
    late = (lambda: False) if is_late is None else is_late
    return allocated_by(made, on or node(), claims, late)


def devices(slices, *claims, **options):
    return picked(allocate(slices, *claims, **options))


def gpus(*names, **spec):
    return [resource_slice("s", *names, **spec)]


# -- picking ---------------------------------------------------------------------------------------


def test_the_first_fit_wins():
    assert devices(gpus("a", "b", "c"), claim("c", exactly(count=2))) == [["a", "b"]]


def test_claims_do_not_share_exclusive_devices():
    assert devices(gpus("a", "b"), claim("x"), claim("y")) == [["a"], ["b"]]
    assert devices(gpus("a"), claim("x"), claim("y")) is None


def test_allocated_devices_are_taken():
    other = claim("other", status={"allocation": allocation(("r", "s", "a"))})
    assert devices(gpus("a", "b"), claim("c"), allocated=[other]) == [["b"]]


def test_a_later_request_that_needs_the_first_device_makes_the_search_go_back():
    slices = gpus(device("a", attributes={"big": True}), "b")
    wants = [exactly("any"), exactly("big", selectors=["big=True"])]
    assert devices(slices, claim("c", *wants)) == [["b", "a"]]


def test_a_request_never_takes_a_device_twice_even_if_it_is_shareable():
    slices = gpus(device("a", allowMultipleAllocations=True))
    assert devices(slices, claim("c", exactly(count=2))) is None
    assert devices(slices, claim("c", exactly("x"), exactly("y"))) == [["a", "a"]]


def test_class_selectors_come_before_the_request_s():
    slices = gpus("a")
    classes = [device_class("gpu", "none")]
    wants = claim("c", exactly(selectors=["broken"]))
    assert devices(slices, wants, classes=classes) is None


def test_per_device_selection_counts_for_each_device():
    slices = [
        resource_slice(
            "s",
            device("far", nodeName="n2"),
            device("near", allNodes=True),
            perDeviceNodeSelection=True,
        )
    ]
    assert devices(slices, claim("c")) == [["near"]]


# -- all devices -----------------------------------------------------------------------------------


def test_all_takes_every_selectable_device():
    slices = gpus("a", device("b", attributes={"skip": True}), "c")
    wants = exactly(mode="All", selectors=["skip=None"])
    assert devices(slices, claim("c", wants)) == [["a", "c"]]


def test_all_of_nothing_and_all_with_one_in_use_are_no_solution():
    all_of_them = claim("c", exactly(mode="All"))
    other = claim("other", status={"allocation": allocation(("r", "s", "b"))})
    assert devices([], all_of_them) is None
    assert devices(gpus("a", "b"), all_of_them, allocated=[other]) is None


@pytest.mark.parametrize(
    ("slices", "state"),
    [
        pytest.param([resource_slice("s", "a", count=2)], "being updated", id="incomplete"),
        pytest.param([resource_slice("s", "a", "a")], "invalid", id="invalid"),
    ],
)
def test_all_refuses_pools_that_are_not_known_completely(slices, state):
    with pytest.raises(AllocationError) as caught:
        allocate(slices, claim("c", exactly(mode="All")))
    assert str(caught.value) == (
        "claim default/c, request r: asks for all devices, but resource pool gpu.example.com/s "
        f"is currently {state}"
    )


def test_all_with_a_constraint_that_cannot_hold_is_an_error():
    slices = gpus(device("a", attributes={"m": "x"}), device("b", attributes={"m": "y"}))
    constraints = [{"matchAttribute": "gpu.example.com/m"}]
    with pytest.raises(AllocationError) as caught:
        allocate(slices, claim("c", exactly(mode="All"), constraints=constraints))
    assert str(caught.value) == (
        "claim default/c, request r: cannot add device gpu.example.com/s/b because a claim "
        "constraint would not be satisfied"
    )


# -- alternatives ----------------------------------------------------------------------------------


def test_the_first_alternative_that_can_be_had_is_taken():
    wants = first_available("r", exactly("big", count=3), exactly("small", count=1))
    (result,) = allocate(gpus("a", "b"), claim("c", wants))
    assert [(each.request, each.device) for each in result.devices.results] == [("r/small", "a")]


def test_an_alternative_that_exceeds_the_limit_gives_way_to_the_next():
    many = gpus(*(f"d{number}" for number in range(40)))
    wants = [
        first_available("r", exactly("many", count=20), exactly("few", count=2)),
        exactly("rest", count=20),
    ]
    (result,) = allocate(many, claim("c", *wants))
    assert [each.request for each in result.devices.results][:3] == ["r/few", "r/few", "rest"]


def test_the_claim_limit_is_32_devices():
    many = gpus(*(f"d{number}" for number in range(40)))
    assert len(devices(many, claim("c", exactly(count=32)))[0]) == 32
    with pytest.raises(AllocationError) as caught:
        allocate(many, claim("c", exactly(count=33)))
    assert str(caught.value) == (
        "claim default/c: number of requested devices 33 exceeds the claim limit of 32"
    )


def test_many_claims_of_many_devices_do_not_exhaust_the_stack():
    slices = [
        resource_slice(f"s{number:02}", *(f"d{n}" for n in range(100))) for number in range(16)
    ]
    claims = [claim(f"c{number}", exactly(count=32)) for number in range(48)]
    assert sum(map(len, devices(slices, *claims))) == 48 * 32


# -- admin access ----------------------------------------------------------------------------------


def test_admin_access_reaches_devices_in_use_and_says_so():
    other = claim("other", status={"allocation": allocation(("r", "s", "a"))})
    (result,) = allocate(gpus("a"), claim("c", exactly(adminAccess=True)), allocated=[other])
    assert plain(result.devices.results) == [
        {
            "request": "r",
            "driver": "gpu.example.com",
            "pool": "s",
            "device": "a",
            "adminAccess": True,
        }
    ]


def test_admin_access_does_not_take_a_device_twice_within_a_claim():
    wants = [exactly("x", adminAccess=True), exactly("y", adminAccess=True)]
    assert devices(gpus("a"), claim("c", *wants)) is None
    assert devices(gpus("a"), claim("c", wants[0]), claim("d", wants[1])) == [["a"], ["a"]]


def test_an_admin_allocation_does_not_block_others():
    admin = {"allocation": allocation(("r", "s", "a", {"adminAccess": True}))}
    assert devices(gpus("a"), claim("c"), allocated=[claim("o", status=admin)]) == [["a"]]


# -- taints ----------------------------------------------------------------------------------------

TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        pytest.param({"operator": "Exists"}, True, id="everything"),
        pytest.param({"key": "k", "operator": "Exists"}, True, id="the key"),
        pytest.param({"key": "k", "value": "v"}, True, id="equal by default"),
        pytest.param({"key": "k", "operator": "Equal", "value": "w"}, False, id="another value"),
        pytest.param({"key": "x", "operator": "Exists"}, False, id="another key"),
        pytest.param({"operator": "Exists", "effect": "NoExecute"}, False, id="another effect"),
        pytest.param({"key": "k", "operator": "Lt", "value": "v"}, False, id="unknown operator"),
    ],
)
def test_a_taint_blocks_unless_it_is_tolerated(toleration, tolerated):
    wants = claim("c", exactly(tolerations=[toleration]))
    assert (devices(gpus(device("a", taints=[TAINT])), wants) is not None) is tolerated


def test_every_taint_must_be_tolerated_and_unknown_effects_never_block():
    second = {"key": "other", "effect": "NoExecute"}
    wants = claim("c", exactly(tolerations=[{"key": "k", "operator": "Exists"}]))
    assert devices(gpus(device("a", taints=[TAINT, second])), wants) is None
    harmless = [{**TAINT, "effect": "None"}, {**TAINT, "effect": "Later"}]
    assert devices(gpus(device("a", taints=harmless)), claim("c")) == [["a"]]


def test_a_toleration_of_one_alternative_does_not_help_another():
    tolerant = exactly("x", count=2, tolerations=[{"operator": "Exists"}])
    wants = first_available("r", tolerant, exactly("y"))
    assert devices(gpus(device("a", taints=[TAINT])), claim("c", wants)) is None


# -- constraints -----------------------------------------------------------------------------------


def attributed(name, value):
    return device(name, attributes={"numa": value} if value is not None else {})


def test_match_attribute_makes_the_search_go_back():
    slices = gpus(attributed("a", 0), attributed("b", 1), attributed("c", 1))
    constraints = [{"matchAttribute": "gpu.example.com/numa"}]
    assert devices(slices, claim("c", exactly(count=2), constraints=constraints)) == [["b", "c"]]


@pytest.mark.parametrize("first", [1, "1", True, {"version": "1.0.0"}, None])
@pytest.mark.parametrize("second", [1, "1", True, {"version": "1.0.0"}, None])
def test_values_match_if_type_and_value_are_equal(first, second):
    slices = gpus(attributed("a", first), attributed("b", second))
    constraints = [{"matchAttribute": "gpu.example.com/numa"}]
    matches = devices(slices, claim("c", exactly(count=2), constraints=constraints)) is not None
    assert matches is (first is not None and type(first) is type(second) and first == second)


def test_an_attribute_without_a_domain_is_of_the_driver_s():
    slices = gpus(attributed("a", 0), attributed("b", 0))
    constraints = [{"matchAttribute": "other.example.com/numa"}]
    assert devices(slices, claim("c", exactly(count=2), constraints=constraints)) is None


def test_constraints_apply_to_the_requests_they_name():
    slices = gpus(attributed("a", 0), attributed("b", 1), attributed("c", 0))
    wants = [exactly("x"), exactly("y"), exactly("z")]
    constraints = [{"requests": ["x", "z"], "matchAttribute": "gpu.example.com/numa"}]
    assert devices(slices, claim("c", *wants, constraints=constraints)) == [["a", "b", "c"]]


def test_distinct_attribute_compares_all_devices():
    """In 1.36 one value is remembered per request, so the third device may repeat the first."""
    slices = gpus(attributed("a", 0), attributed("b", 1), attributed("c", 0), attributed("d", 2))
    constraints = [{"distinctAttribute": "gpu.example.com/numa"}]
    wants = claim("c", exactly(count=3), constraints=constraints)
    assert devices(slices, wants) == [["a", "b", "d"]]
    assert devices(slices, wants, features=AS_1_36) == [["a", "b", "c"]]
    same = gpus(attributed("a", 0), attributed("b", 0))
    for features in (Features(), AS_1_36):
        wants = claim("c", exactly(count=2), constraints=constraints)
        assert devices(same, wants, features=features) is None


# -- counters --------------------------------------------------------------------------------------


def partitions(*sizes, total="4", **spec):
    parts = [
        device(
            f"p{number}",
            consumesCounters=[{"counterSet": "card", "counters": {"mem": {"value": str(size)}}}],
        )
        for number, size in enumerate(sizes)
    ]
    shared = [{"name": "card", "counters": {"mem": {"value": total}}}]
    return [
        resource_slice("s-counters", pool="p", count=2, sharedCounters=shared),
        resource_slice("s-devices", *parts, pool="p", count=2, **spec),
    ]


def test_partitions_share_their_counters():
    assert devices(partitions(3, 2, 2), claim("c", exactly(count=2))) == [["p1", "p2"]]
    assert devices(partitions(3, 2), claim("c", exactly(count=2))) is None


def test_allocated_partitions_count_against_the_counters():
    other = claim("other", status={"allocation": allocation(("r", "p", "p0"))})
    assert devices(partitions(3, 2, 1), claim("c"), allocated=[other]) == [["p2"]]


def test_a_device_that_is_refused_gives_its_counters_back():
    slices = partitions(3, 3)
    tainted = structs.replace(slices[1].spec.devices[0], taints=[DeviceTaint(**TAINT)])
    spec = structs.replace(slices[1].spec, devices=[tainted, slices[1].spec.devices[1]])
    assert devices([slices[0], structs.replace(slices[1], spec=spec)], claim("c")) == [["p1"]]


# -- consumable capacity ---------------------------------------------------------------------------


def shareable(policy=None, value="10Gi"):
    capacity = {"value": value}
    if policy:
        capacity["requestPolicy"] = policy
    return gpus(device("a", allowMultipleAllocations=True, capacity={"mem": capacity}))


def consumed(slices, amount=None, **options):
    wants = exactly(capacity={"requests": {"mem": amount}}) if amount else exactly()
    results = allocate(slices, claim("c", wants), **options)
    return None if results is None else results[0].devices.results[0].consumed_capacity["mem"]


RANGE = {"default": "1Gi", "validRange": {"min": "2Gi", "max": "8Gi", "step": "3Gi"}}
VALUES = {"default": "1Gi", "validValues": ["1Gi", "2Gi", "4Gi"]}


@pytest.mark.parametrize(
    ("policy", "amount", "taken"),
    [
        pytest.param(None, None, "10Gi", id="all of it without policy and request"),
        pytest.param(None, "3Gi", "3Gi", id="what is asked without policy"),
        pytest.param(RANGE, None, "1Gi", id="the default, though outside the range"),
        pytest.param(RANGE, "1", "2Gi", id="at least the minimum"),
        pytest.param(RANGE, "3Gi", "5Gi", id="rounded up to a step"),
        pytest.param(RANGE, "9Gi", None, id="above the maximum"),
        pytest.param(VALUES, "3Gi", "4Gi", id="the next valid value"),
        pytest.param(VALUES, "5Gi", None, id="above all valid values"),
        pytest.param(None, "11Gi", None, id="more than there is"),
    ],
)
def test_what_a_share_consumes(policy, amount, taken):
    assert consumed(shareable(policy), amount) == taken


def test_shares_add_up_to_the_capacity():
    share = {"shareID": "1", "consumedCapacity": {"mem": "6Gi"}}
    other = claim("other", status={"allocation": allocation(("r", "s", "a", share))})
    assert consumed(shareable(), "4Gi", allocated=[other]) == "4Gi"
    assert consumed(shareable(), "5Gi", allocated=[other]) is None
    three = exactly("x", capacity={"requests": {"mem": "4Gi"}})
    wants = [{**three, "name": name} for name in "xyz"]
    assert allocate(shareable(), claim("c", *wants)) is None
    assert allocate(shareable(), claim("c", *wants[:2])) is not None


def test_a_request_for_a_capacity_that_the_device_lacks_fails():
    wants = exactly(capacity={"requests": {"other": "1"}})
    assert allocate(shareable(), claim("c", wants)) is None


# -- results ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("features", "times"), [(Features(), 1), (AS_1_36, 2)])
def test_settings_of_classes_come_before_those_of_the_claim(features, times):
    """In 1.36 settings of the claim come once per request that they name."""
    opaque = {"driver": "gpu.example.com", "parameters": {"x": 1}}
    classes = [device_class("gpu", config=[{"opaque": opaque}]), device_class("plain")]
    wants = [exactly("a"), exactly("b", class_name="plain"), exactly("c")]
    config = [{"requests": ["a", "b"], "opaque": opaque}, {"opaque": opaque}]
    (result,) = allocate(
        gpus("x", "y", "z"), claim("c", *wants, config=config), classes=classes, features=features
    )
    assert [(each.source, each.requests) for each in result.devices.config] == [
        ("FromClass", ["a", "c"]),
        *[("FromClaim", ["a", "b"])] * times,
        ("FromClaim", None),
    ]


def in_zone(*zones):
    expression = {"key": "zone", "operator": "In", "values": list(zones)}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}


def test_network_devices_restrict_the_claim_to_the_union_of_what_they_require():
    slices = [
        resource_slice("s1", "a", nodeSelector=in_zone("a", "b")),
        resource_slice("s2", "b", nodeSelector=in_zone("b", "a")),
        resource_slice("s3", "c", nodeSelector=in_zone("a")),
    ]
    (result,) = allocate(slices, claim("c", exactly(count=3)), on=node("n1", zone="a"))
    (term,) = result.node_selector.node_selector_terms
    assert [each.values for each in term.match_expressions] == [["a", "b"], ["a"]]


def test_network_devices_may_require_fields_of_the_node():
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    slices = [resource_slice(name, name, nodeSelector=selector) for name in "ab"]
    (result,) = allocate(slices, claim("c", exactly(count=2)), on=node("n1"))
    assert plain(result.node_selector) == selector


@pytest.mark.parametrize(
    "local",
    [resource_slice("s9", "b"), resource_slice("s9", device("b", bindsToNode=True), allNodes=True)],
)
def test_a_device_of_the_node_restricts_the_claim_to_it(local):
    slices = [resource_slice("s1", "a", nodeSelector=in_zone("a")), local]
    (result,) = allocate(slices, claim("c", exactly(count=2)), on=node("n1", zone="a"))
    assert plain(result.node_selector) == {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
        ]
    }


def test_devices_for_all_nodes_do_not_restrict_the_claim():
    (result,) = allocate(gpus("a", allNodes=True), claim("c"))
    assert result.node_selector is None


def test_binding_conditions_are_part_of_the_result():
    slices = gpus(device("a", bindingConditions=["up"], bindingFailureConditions=["down"]))
    (result,) = allocate(slices, claim("c"))
    (picked_device,) = result.devices.results
    assert picked_device.binding_conditions == ["up"]
    assert picked_device.binding_failure_conditions == ["down"]


# -- what cannot be judged -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wants", "problem"),
    [
        pytest.param(
            exactly(class_name=""),
            "claim default/c, request r: missing device class name (unsupported request type?)",
            id="no class",
        ),
        pytest.param(
            exactly(class_name="x"),
            "claim default/c, request r: could not retrieve device class x: "
            'deviceclass.resource.k8s.io "x" not found',
            id="unknown class",
        ),
        pytest.param(
            exactly(mode="Some"),
            "claim default/c, request r: unsupported count mode Some",
            id="unknown mode",
        ),
        pytest.param(
            {"name": "r", "exactly": {"deviceClassName": "gpu", "selectors": [{}]}},
            "claim default/c, request r, selector #0: CEL expression empty "
            "(unsupported selector type?)",
            id="selector without expression",
        ),
        pytest.param(
            exactly(selectors=["all", "broken"]),
            "claim default/c: selector #1 on device gpu.example.com/s/a: CEL runtime error: broken",
            id="selector that fails",
        ),
    ],
)
def test_requests_that_cannot_be_judged(wants, problem):
    with pytest.raises(AllocationError) as caught:
        allocate(gpus("a"), claim("c", wants))
    assert str(caught.value) == problem


def test_an_empty_constraint_is_refused():
    with pytest.raises(AllocationError) as caught:
        allocate(gpus("a"), claim("c", constraints=[{}]))
    assert str(caught.value) == (
        "claim default/c, constraint #0: empty constraint (unsupported constraint type?)"
    )


@pytest.mark.parametrize(
    ("features", "wants", "problem"),
    [
        (
            Features(prioritized_list=False),
            first_available("r", exactly("x")),
            "request r: has subrequests, but the DRAPrioritizedList feature is disabled",
        ),
        (
            Features(consumable_capacity=False),
            exactly(capacity={}),
            "request r: has capacity requests, but the DRAConsumableCapacity feature is disabled",
        ),
        (
            Features(consumable_capacity=False),
            first_available("r", exactly("x", capacity={})),
            "subrequest x: has capacity requests, but the DRAConsumableCapacity feature is "
            "disabled",
        ),
        (
            Features(admin_access=False),
            exactly(adminAccess=False),
            "request r: admin access is requested, but the feature is disabled",
        ),
    ],
)
def test_what_a_gate_switches_off_is_refused(features, wants, problem):
    with pytest.raises(AllocationError) as caught:
        allocate(gpus("a"), claim("c", wants), features=features)
    assert str(caught.value) == f"claim default/c, {problem}"


def test_an_invalid_pool_matters_only_without_a_solution():
    invalid = resource_slice("bad", "x", "x")
    assert devices([invalid, *gpus("a")], claim("c")) == [["a"]]
    with pytest.raises(InvalidPools, match="invalid resource pools were encountered"):
        allocate([invalid], claim("c"))


def test_the_time_limit_ends_the_search():
    asked = []

    def is_late():
        asked.append(True)
        return len(asked) > 5

    with pytest.raises(AllocationTimeout):
        allocate(gpus(*"abcdefgh"), claim("c", exactly(count=8)), is_late=is_late)


def test_a_device_selector_with_several_terms_is_refused():
    several = {"nodeSelectorTerms": [*in_zone("a")["nodeSelectorTerms"] * 2]}
    slices = [resource_slice("s", device("a", nodeSelector=several), perDeviceNodeSelection=True)]
    with pytest.raises(AllocationError) as caught:
        allocate(slices, claim("c"), on=node("n1", zone="a"))
    assert str(caught.value) == (
        "create NodeSelector for claim c: unsupported ResourceSlice.NodeSelector with 2 terms"
    )
