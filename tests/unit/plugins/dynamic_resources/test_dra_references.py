"""What changed for devices between releases of kube-scheduler: the same cluster under each of
them.
"""

from dataclasses import replace

import pytest
from dra_objects import allocation, claim, device, device_class, exactly, resource_slice
from msgspec import convert

from kubesched.api import resource_v1, resource_v1beta2
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.config.features import defaults
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import Code
from kubesched.plugins.dynamic_resources import DynamicResources
from kubesched.testing import Cluster
from kubesched.testing.builders import make_node, make_pod

VERSIONS = ("1.37", "1.36")
DRIVER = "gpu.example.com"
OPAQUE = {"opaque": {"driver": DRIVER, "parameters": {"x": 1}}}
NOT_HELPFUL = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
CANNOT_ALLOCATE = {
    "1.37": f"0/1 nodes are available: 1 cannot allocate all claims. {NOT_HELPFUL}",
    "1.36": "0/1 nodes are available: 1 cannot allocate all claims. "
    f"still not schedulable, {NOT_HELPFUL}",
}


def cluster(version, *objects, nodes=("n1",), **gates):
    made = Cluster(gates=replace(defaults(version), **gates))
    for each in objects:
        made.put(each)
    for name in nodes:
        made.add(name if not isinstance(name, str) else make_node(name).build())
    return made


def pod(name, *claims):
    entries = [{"name": f"e{n}", "resourceClaimName": each} for n, each in enumerate(claims)]
    return make_pod(name).uid(f"uid-{name}").spec(resourceClaims=entries).build()


def stored(world, name):
    return world.listers.of(ResourceClaim).get("default", name)


def scheduled(world, *pods):
    """Bind pods one after the other, as far as possible; returns the last one's condition."""
    for each in pods:
        world.add(each)
        world.settle()
    return world.condition(pods[-1].metadata.name)


def results(world, name):
    found = stored(world, name).status.allocation
    return None if found is None else found.devices.results


def settings(world, name):
    config = stored(world, name).status.allocation.devices.config
    return [(each.source, each.requests) for each in config]


# -- results ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "requests"), [("1.37", None), ("1.36", ["r"])])
def test_settings_for_the_only_request_name_none(version, requests):
    """T28."""
    objects = [device_class("gpu", config=[OPAQUE]), resource_slice("s", "a"), claim("c")]
    with cluster(version, *objects) as world:
        scheduled(world, pod("p", "c"))
        assert settings(world, "c") == [("FromClass", requests)]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            "1.37",
            [("FromClass", None), ("FromClaim", None), ("FromClaim", ["a"]), ("FromClaim", None)],
        ),
        (
            "1.36",
            [
                ("FromClass", ["a", "b"]),
                ("FromClaim", ["a", "b"]),
                ("FromClaim", ["a", "b"]),
                ("FromClaim", ["a"]),
                ("FromClaim", None),
            ],
        ),
    ],
)
def test_settings_for_several_requests_come_once(version, expected):
    """T29."""
    config = [{"requests": ["a", "b"], **OPAQUE}, {"requests": ["a"], **OPAQUE}, OPAQUE]
    wants = claim("c", exactly("a"), exactly("b"), config=config)
    objects = [device_class("gpu", config=[OPAQUE]), resource_slice("s", "x", "y"), wants]
    with cluster(version, *objects) as world:
        scheduled(world, pod("p", "c"))
        assert settings(world, "c") == expected


# -- allocation ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "picked"), [("1.37", None), ("1.36", ["d0", "d1", "d2"])])
def test_distinct_attributes_of_three_devices(version, picked):
    """T30."""
    devices = [device(f"d{n}", attributes={"g": g}) for n, g in enumerate("aba")]
    constraints = [{"distinctAttribute": f"{DRIVER}/g"}]
    wants = claim("c", exactly(count=3), constraints=constraints)
    with cluster(version, device_class(), resource_slice("s", *devices), wants) as world:
        condition = scheduled(world, pod("p", "c"))
        found = results(world, "c")
        assert (found and [each.device for each in found]) == picked
        assert picked or condition == ("Unschedulable", CANNOT_ALLOCATE[version])


def shareable(name, value="10", policy=None):
    capacity = {"value": value} if policy is None else {"value": value, "requestPolicy": policy}
    return device(name, allowMultipleAllocations=True, capacity={"mem": capacity})


def wanting(name, amount, **fields):
    return claim(name, exactly("r0", capacity={"requests": {"mem": amount}}, **fields))


@pytest.mark.parametrize(("version", "picked"), [("1.37", None), ("1.36", ["s1"])])
def test_all_devices_when_one_is_full(version, picked):
    """T31."""
    objects = [
        device_class(),
        resource_slice("s", shareable("s0"), shareable("s1")),
        wanting("full", "10"),
        wanting("all", "1", mode="All"),
    ]
    with cluster(version, *objects) as world:
        condition = scheduled(world, pod("p", "full"), pod("q", "all"))
        found = results(world, "all")
        assert (found and [each.device for each in found]) == picked
        assert picked or condition == ("Unschedulable", CANNOT_ALLOCATE[version])


@pytest.mark.parametrize(("version", "both"), [("1.37", True), ("1.36", False)])
def test_counters_of_a_shared_device_without_capacity(version, both):
    """T32."""
    consumes = [{"counterSet": "c", "counters": {"m": {"value": "1"}}}]
    part = device("part", allowMultipleAllocations=True, consumesCounters=consumes)
    counters = [{"name": "c", "counters": {"m": {"value": "1"}}}]
    objects = [
        device_class(),
        resource_slice("counters", pool="p", count=2, sharedCounters=counters),
        resource_slice("devices", part, pool="p", count=2),
        claim("c1"),
        claim("c2"),
    ]
    with cluster(version, *objects) as world:
        scheduled(world, pod("p1", "c1"), pod("p2", "c2"))
        assert (results(world, "c2") is not None) is both


@pytest.mark.parametrize(("version", "retried"), [("1.37", True), ("1.36", False)])
def test_a_deleted_claim_that_held_a_device(version, retried):
    """T33."""
    with cluster(
        version, device_class(), resource_slice("s", "a"), claim("c9"), claim("c10")
    ) as world:
        scheduled(world, pod("p", "c9"), pod("q", "c10"))
        assert world.client.bindings == {"default/p": "n1"}
        world.delete(stored(world, "c9"))
        world.settle()
        assert ("default/q" in world.client.bindings) is retried


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (
            "1.37",
            "claim default/c: selector #0 on device gpu.example.com/s/a1: CEL runtime error: no "
            "such key: nope. consider using CEL optional chaining (.? followed by orValue()) or "
            "guarding the check with has() for optional fields",
        ),
        ("1.36", "claim default/c: selector #0: CEL runtime error: no such key: nope"),
    ],
)
def test_a_selector_for_an_attribute_that_a_device_lacks(version, text):
    """T34."""
    wants = claim("c", exactly(selectors=[f'device.attributes["{DRIVER}"].nope == 1']))
    slices = resource_slice("s", device("a1", attributes={"g": 1}))
    with cluster(version, device_class(), slices, wants) as world:
        assert scheduled(world, pod("p", "c")) == (
            "SchedulerError",
            f'running "DynamicResources" filter plugin: {text}',
        )


@pytest.mark.parametrize(("version", "consumed"), [("1.37", "2048"), ("1.36", "2Ki")])
def test_a_rounded_amount_is_written_like_the_step(version, consumed):
    """T35."""
    policy = {"default": "1024", "validRange": {"min": "1024", "step": "1024"}}
    slices = resource_slice("s", shareable("s0", "10240", policy))
    with cluster(version, device_class(), slices, wanting("c", "1500")) as world:
        scheduled(world, pod("p", "c"))
        assert results(world, "c")[0].consumed_capacity == {"mem": consumed}


@pytest.mark.parametrize("version", VERSIONS)
def test_fractions_are_rounded_to_whole_units_without_their_gate(version):
    """T36."""
    policy = {"default": "500m", "validRange": {"min": "500m", "step": "250m"}}
    slices = resource_slice("s", shareable("s0", "10", policy))
    with cluster(version, device_class(), slices, wanting("c", "600m")) as world:
        scheduled(world, pod("p", "c"))
        assert results(world, "c")[0].consumed_capacity == {"mem": "1"}


@pytest.mark.parametrize(
    ("requested", "consumed"),
    [("600m", "750m"), ("1", "1"), ("1100m", "1250m"), ("100m", "500m")],
)
def test_fractions_are_rounded_to_steps_with_their_gate(requested, consumed):
    """T36."""
    policy = {"default": "500m", "validRange": {"min": "500m", "max": "2", "step": "250m"}}
    slices = resource_slice("s", shareable("s0", "10", policy))
    objects = [device_class(), slices, wanting("c", requested)]
    with cluster("1.37", *objects, DRAFractionalCapacityRange=True) as world:
        scheduled(world, pod("p", "c"))
        assert results(world, "c")[0].consumed_capacity == {"mem": consumed}


SHORT_OF = "capacity request cannot be represented in the device's range arithmetic: "


@pytest.mark.parametrize(
    ("requested", "valid", "problem"),
    [
        (
            "1u",
            {"min": "0", "step": "1m"},
            SHORT_OF + "request 1u is not a representable milli value",
        ),
        (
            "9223372036854775",
            {"min": "1", "step": "5000"},
            SHORT_OF
            + "rounding request 9223372036854775 up to the next step passes the milli-value range",
        ),
        (
            "9223372036854775808",
            {"min": "0", "step": "9223372036854775807"},
            SHORT_OF + "request 9223372036854775808 exceeds MaxInt64",
        ),
        (
            "1",
            {"min": "-3", "step": "1"},
            SHORT_OF + "rounding request 1 up to the next step passes the milli-value range",
        ),
        ("-2", {"min": "-2"}, "capacity value is negative"),
    ],
)
def test_amounts_that_cannot_be_computed(requested, valid, problem):
    slices = resource_slice("s", shareable("s0", "9223372036854775807", {"validRange": valid}))
    objects = [device_class(), slices, wanting("c", requested)]
    with cluster("1.37", *objects, DRAFractionalCapacityRange=True) as world:
        assert scheduled(world, pod("p", "c")) == (
            "SchedulerError",
            'running "DynamicResources" filter plugin: claim default/c, request r0: checking '
            "capacity for "
            f'device gpu.example.com/s/s0: capacity "mem": {problem}',
        )


def test_with_all_devices_an_amount_that_cannot_be_computed_is_told_with_the_bare_name():
    slices = resource_slice("s", shareable("s0", "-1"))
    wants = claim("c", exactly("r0", mode="All"))
    with cluster("1.37", device_class(), slices, wants) as world:
        assert scheduled(world, pod("p", "c")) == (
            "SchedulerError",
            'running "DynamicResources" filter plugin: claim default/c, request r0: checking '
            "capacity for "
            'device s0: capacity "mem": capacity value is negative',
        )


@pytest.mark.parametrize(
    ("version", "condition"),
    [
        (
            "1.37",
            (
                "SchedulerError",
                'running "DynamicResources" filter plugin: claim default/co, request r0: checking '
                'capacity for device gpu.example.com/s/s0: capacity "mem": capacity request cannot '
                "be represented in the device's range arithmetic: rounding request "
                "9223372036854775800 up to the next step passes MaxInt64",
            ),
        ),
        ("1.36", ("Unschedulable", CANNOT_ALLOCATE["1.36"])),
    ],
)
def test_an_amount_that_overflows(version, condition):
    """T38."""
    policy = {"default": "1", "validRange": {"min": "1", "step": "1000"}}
    slices = resource_slice("s", shareable("s0", "9223372036854775807", policy))
    with cluster(version, device_class(), slices, wanting("co", "9223372036854775800")) as world:
        assert scheduled(world, pod("p", "co")) == condition


@pytest.mark.parametrize("version", VERSIONS)
def test_selectors_read_attributes_with_several_values(version):
    """They became readable in 1.37, whatever the gate says; 1.36 could not judge such a device."""
    several = {"zones": {"strings": ["a", "b"]}, "sizes": {"ints": [1]}, "model": "x"}
    versions = {"fits": {"versions": ["1.2.3"]}}
    slices = resource_slice("s", device("d", attributes={**several, **versions}))
    attributes = f'device.attributes["{DRIVER}"]'
    expression = " && ".join(
        [
            f'{attributes}.zones.includes("b") && !{attributes}.zones.includes("c")',
            f'{attributes}.zones.exists(zone, zone == "a") && {attributes}.sizes == [1]',
            f'{attributes}.model.includes("x") && !{attributes}.model.includes("y")',
            f'{attributes}.fits.includes(semver("1.2.3"))',
        ]
    )
    plain = f'{attributes}.model == "x"'
    objects = [device_class(), slices]
    wants = [claim("c", exactly(selectors=[expression])), claim("d", exactly(selectors=[plain]))]
    with cluster(version, *objects, *wants) as world:
        texts = [scheduled(world, pod(name, name)) for name in "cd"]
        if version == "1.37":
            assert world.client.bindings == {"default/c": "n1"}
            return
        assert "undeclared reference" in texts[0][1] or "includes" in texts[0][1]
        assert texts[1] == (
            "SchedulerError",
            'running "DynamicResources" filter plugin: claim default/d: selector #0: CEL runtime '
            "error: "
            "attribute zones: unsupported attribute value",
        )


# -- taint rules -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "api"),
    [("1.37", resource_v1), ("1.36", resource_v1beta2)],
    ids=["v1", "v1beta2"],
)
def test_a_rule_repels_pods_until_it_is_deleted(version, api):
    """T37, with the gate on; each release reads its own version of the rules."""
    spec = {"deviceSelector": {"driver": DRIVER}, "taint": {"key": "bad", "effect": "NoSchedule"}}
    rule = convert({"metadata": {"name": "r"}, "spec": spec}, api.DeviceTaintRule)
    objects = [device_class(), resource_slice("s", "a"), claim("c")]
    with cluster(version, *objects, DRADeviceTaintRules=True) as world:
        world.add(rule)
        assert scheduled(world, pod("p", "c")) == ("Unschedulable", CANNOT_ALLOCATE[version])
        world.delete(rule)
        world.settle()
        assert world.client.bindings == {"default/p": "n1"}


def test_without_the_gate_rules_are_not_read():
    """X3."""
    spec = {"deviceSelector": {"driver": DRIVER}, "taint": {"key": "bad", "effect": "NoSchedule"}}
    rule = convert({"metadata": {"name": "r"}, "spec": spec}, resource_v1.DeviceTaintRule)
    objects = [device_class(), resource_slice("s", "a"), claim("c")]
    with cluster("1.37", *objects, DRADeviceTaintRules=False) as world:
        world.add(rule)
        scheduled(world, pod("p", "c"))
        assert world.client.bindings == {"default/p": "n1"}


# -- extended resources ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pod_with_an_extended_resource_gets_a_claim_and_the_next_one_waits(version):
    """T39, T40."""
    backed = device_class("gpu", extendedResourceName="example.com/gpu")
    with cluster(version, backed, resource_slice("s", "a")) as world:
        pods = [make_pod(name).request("example.com/gpu", "1").build() for name in "pq"]
        assert scheduled(world, *pods) == ("Unschedulable", CANNOT_ALLOCATE[version])
        assert world.client.bindings == {"default/p": "n1"}
        made = 'status="success",admin_access="false",owner_api_group="",owner_api_kind="Pod"'
        counted = {
            "1.37": f"dynamic_resource_allocation_resourceclaim_creates_total{{{made}}} 1",
            "1.36": 'scheduler_resourceclaim_creates_total{status="success"} 1',
        }
        page = world.metrics.text().splitlines()
        assert [line for line in page if "resourceclaim_creates_total{" in line] == [
            counted[version]
        ]


# -- alpha fields ----------------------------------------------------------------------------------


def with_groups():
    consumes = [
        {"counterSet": "c", "counters": {"m": {"value": "1"}}, "compatibilityGroups": ["g"]}
    ]
    counters = [{"name": "c", "counters": {"m": {"value": "9"}}}]
    return [
        resource_slice("counters", pool="p", count=3, sharedCounters=counters),
        resource_slice("grouped", device("g", consumesCounters=consumes), pool="p", count=3),
        resource_slice("plain", "a", pool="p", count=3),
    ]


@pytest.mark.parametrize(("version", "is_ignored"), [("1.37", True), ("1.36", False)])
def test_a_slice_with_compatibility_groups_makes_its_pool_incomplete(version, is_ignored):
    """Y5."""
    objects = [device_class(), *with_groups(), claim("c"), claim("all", exactly(mode="All"))]
    with cluster(version, *objects) as world:
        condition = scheduled(world, pod("p", "c"))
        assert (results(world, "c") is None) is is_ignored
        if is_ignored:
            assert condition == ("Unschedulable", CANNOT_ALLOCATE[version])
            assert scheduled(world, pod("q", "all")) == (
                "SchedulerError",
                'running "DynamicResources" filter plugin: claim default/all, request r: asks for '
                "all devices, but resource pool gpu.example.com/p is currently being updated",
            )


def test_a_newer_slice_with_compatibility_groups_makes_older_ones_obsolete():
    """Its generation counts, although nothing else about it does."""
    newer = [
        resource_slice(each.metadata.name + "-2", *[], pool="p", count=3, generation=2)
        for each in with_groups()
    ]
    consumes = [{"counterSet": "c", "counters": {}, "compatibilityGroups": ["g"]}]
    grouped = resource_slice(
        "newest", device("g", consumesCounters=consumes), pool="q", generation=2, nodeName="n2"
    )
    older = resource_slice("older", "a", pool="q", count=2)
    with cluster("1.37", device_class(), *newer, grouped, older, claim("c")) as world:
        assert scheduled(world, pod("p", "c")) == ("Unschedulable", CANNOT_ALLOCATE["1.37"])
        world.delete(grouped)
        world.put(resource_slice("more", "b", pool="q", count=2))
        world.add(resource_slice("event", "z", pool="z", nodeName="n3"))
        world.settle()
        assert [each.device for each in results(world, "c")] == ["b"]


@pytest.mark.parametrize("version", VERSIONS)
def test_derived_attributes_are_refused(version):
    """Y6; 1.36 does not know the field."""
    derived = [{"name": "x", "expression": "1"}]
    wants = claim("c", exactly("r", derivedAttributes=derived))
    with cluster(version, device_class(), resource_slice("s", "a"), wants) as world:
        condition = scheduled(world, pod("p", "c"))
        if version == "1.36":
            assert world.client.bindings == {"default/p": "n1"}
        else:
            assert condition == (
                "SchedulerError",
                'running "DynamicResources" filter plugin: claim default/c, request r: cannot '
                "handle request with derived attributes, the feature is disabled",
            )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("has_special", [False, True], ids=["grouped", "node by node"])
def test_skipped_node_operations_need_a_node_that_declares_them(version, has_special):
    held = allocation(("r", "s", "a", {"skipNodeOperations": ["All"]}))
    users = [{"resource": "pods", "name": "other", "uid": "uid-other"}]
    objects = [
        device_class("backed", extendedResourceName="example.com/x"),
        resource_slice("x", "x", allNodes=True),
        claim("c", status={"allocation": held, "reservedFor": users}),
    ]
    wants = make_pod("p").uid("uid-p")
    wants.spec(resourceClaims=[{"name": "e", "resourceClaimName": "c"}])
    if has_special:
        wants.request("example.com/x", "1")
    with cluster(version, *objects) as world:
        condition = scheduled(world, wants.build())
        assert (world.client.bindings == {"default/p": "n1"}) is (version == "1.36")
        if version == "1.37":
            assert condition == (
                "Unschedulable",
                "0/1 nodes are available: 1 resourceclaim not available on the node. "
                + NOT_HELPFUL,
            )
            world.add(make_node("n2").declares("DRAOptionalNodeOperations").build())
            world.settle()
            assert world.client.bindings == {"default/p": "n2"}


# -- counters of other nodes -----------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_counter_slice_of_another_node_does_not_make_its_pool_known_here(version):
    """In 1.36 every node saw it, and an incomplete pool made requests for all devices fail."""
    counters = [{"name": "c", "counters": {"m": {"value": "1"}}}]
    foreign = resource_slice(
        "foreign", pool="elsewhere", count=2, sharedCounters=counters, nodeName="n2"
    )
    wants = claim("c", exactly(mode="All"))
    with cluster(version, device_class(), resource_slice("s", "a"), foreign, wants) as world:
        condition = scheduled(world, pod("p", "c"))
        if version == "1.37":
            assert world.client.bindings == {"default/p": "n1"}
        else:
            assert condition[0] == "SchedulerError"
            assert "elsewhere is currently being updated" in condition[1]


def test_a_counter_slice_of_another_node_still_counts_for_its_pool():
    """It is looked up because the pool is incomplete without it."""
    counters = [{"name": "c", "counters": {"m": {"value": "1"}}}]
    consumes = [{"counterSet": "c", "counters": {"m": {"value": "1"}}}]
    parts = [device(name, consumesCounters=consumes) for name in ("p0", "p1")]
    objects = [
        device_class(),
        resource_slice("counters", pool="p", count=2, sharedCounters=counters, nodeName="n2"),
        resource_slice("devices", *parts, pool="p", count=2),
        claim("c1"),
        claim("c2"),
    ]
    with cluster("1.37", *objects) as world:
        condition = scheduled(world, pod("p1", "c1"), pod("p2", "c2"))
        assert world.client.bindings == {"default/p1": "n1"}
        assert condition == ("Unschedulable", CANNOT_ALLOCATE["1.37"])


# -- reserve ---------------------------------------------------------------------------------------


def reserving(world, wants):
    """The plugin and its state after Filter."""
    framework = world.assembly.frameworks["default-scheduler"]
    plugin = next(each for each in framework.plugins if isinstance(each, DynamicResources))
    state, nodes = CycleState(), NodeColumns(plugin.handle.table)
    assert plugin.pre_filter(state, wants, nodes) is None
    assert plugin.filter_nodes(state, wants, nodes) is None
    return plugin, state


@pytest.mark.parametrize("version", VERSIONS)
def test_reserve_looks_at_the_claim_again(version):
    """Between Filter and Reserve the claim was deleted; in 1.36 only PreBind noticed."""
    with cluster(version, device_class(), resource_slice("s", "a"), claim("c")) as world:
        plugin, state = reserving(world, pod("p", "c"))
        world.delete(stored(world, "c"))
        status = plugin.reserve(state, pod("p", "c"), "n1")
        if version == "1.36":
            assert status is None
            return
        assert status.code is Code.ERROR
        assert status.message == (
            "internal error, couldn't signal allocation for claim c: look up assumed claim "
            'default/c, UID=uid-c: could not find ResourceClaim "default/c"'
        )


def test_a_claim_that_was_allocated_since_is_not_held_again():
    with cluster("1.37", device_class(), resource_slice("s", "a", "b"), claim("c")) as world:
        plugin, state = reserving(world, pod("p", "c"))
        world.put(claim("c", status={"allocation": allocation(("r", "s", "b"))}))
        assert plugin.reserve(state, pod("p", "c"), "n1") is None
        claims = plugin.handle.dra_manager.claims
        assert not claims.is_in_flight("uid-c")
        assert [each.device for each in claims.allocated.exclusive] == ["b"]
