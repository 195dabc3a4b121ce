"""Nodes that are alike are judged once: the answers equal those of a fresh allocator for every node
by itself.

The twin here knows no signatures and keeps nothing: slices, allocated devices and pools are put
together anew for each node. The histories change slices, labels and allocations between attempts.
"""

from random import Random

import pytest
from dra_objects import (
    DRIVER,
    NamedSelectors,
    allocated_by,
    allocation,
    allocator,
    claim,
    device,
    device_class,
    exactly,
    first_available,
    node,
    plain,
    resource_slice,
)
from msgspec import convert, structs

from kubesched.api.resource_v1 import AllocationResult
from kubesched.config.references import REFERENCES
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.plugins.dynamic_resources.signature_column import SignatureColumn
from kubesched.plugins.dynamic_resources.structured import allocated_state, node_pools
from kubesched.plugins.dynamic_resources.structured.allocated_state import AllocatedState
from kubesched.plugins.dynamic_resources.structured.allocator import Allocator
from kubesched.plugins.dynamic_resources.structured.failures import AllocationError, InvalidPools
from kubesched.plugins.dynamic_resources.structured.features import Features
from kubesched.plugins.dynamic_resources.structured.node_pools import PoolIndex
from kubesched.plugins.dynamic_resources.structured.pools import Slices

NODES = ["n0", "n1", "n2"]
CLASS = device_class()
IN_ZONE_A = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    ]
}

DEVICES = [
    {},
    {"attributes": {"model": "x"}},
    {"attributes": {"model": "y"}, "taints": [{"key": "k", "effect": "NoSchedule"}]},
    {"allowMultipleAllocations": True, "capacity": {"mem": {"value": "4"}}},
    {"allowMultipleAllocations": True, "capacity": {"mem": {"value": "4"}}},
    {"allowMultipleAllocations": True},
    {"bindingConditions": ["up"]},
]
REQUESTS = [
    exactly("a"),
    exactly("b", count=2),
    exactly("c", selectors=["model=x"]),
    exactly("d", mode="All"),
    exactly("e", adminAccess=True),
    exactly("f", capacity={"requests": {"mem": "1"}}),
    exactly("i", capacity={"requests": {"mem": "2"}}),
    exactly("g", tolerations=[{"operator": "Exists"}]),
    first_available("h", exactly("x", count=3), exactly("y")),
]
CONSTRAINTS = [[], [], [{"matchAttribute": "gpu.example.com/model"}]]


def described(random):
    return [device(f"d{n}", **random.choice(DEVICES)) for n in range(random.randint(0, 3))]


def local(random, name):
    return resource_slice(f"local-{name}", *described(random), pool=name, nodeName=name)


def pair(random, name):
    """Half of a pool of two nodes."""
    return resource_slice(f"pair-{name}", *described(random), pool="pair", nodeName=name, count=2)


def counters(random, pool, count):
    sets = [{"name": "c", "counters": {"m": {"value": str(random.randint(2, 4))}}}]
    return resource_slice(
        f"{pool}-counters", pool=pool, count=count, sharedCounters=sets, nodeName="x"
    )


def partitions(random, pool, count, name):
    consumed = [{"counterSet": "c", "counters": {"m": {"value": "2"}}}]
    parts = [
        {**each, "name": f"{name}-{each['name']}", "consumesCounters": consumed}
        for each in described(random)
    ]
    return resource_slice(f"{pool}-{name}", *parts, pool=pool, count=count, nodeName=name)


def zone(random):
    return resource_slice(
        "zone", *described(random), generation=random.choice([1, 2]), nodeSelector=IN_ZONE_A
    )


def per_device(random):
    chosen = [{**each, "nodeName": random.choice(NODES)} for each in described(random)]
    return resource_slice("per-device", *chosen, perDeviceNodeSelection=True)


# Each makes one slice of its family for a node.
FAMILIES = {
    "local": [local],
    "pair": [lambda random, name: pair(random, NODES[NODES.index(name) % 2])],
    "card": [
        lambda random, name: counters(random, f"card-{name}", 2),
        lambda random, name: partitions(random, f"card-{name}", 2, name),
    ],
    "shared card": [
        lambda random, name: counters(random, "shared", 3),
        lambda random, name: partitions(random, "shared", 3, NODES[NODES.index(name) % 2]),
    ],
    "zone": [lambda random, name: zone(random)],
    "per device": [lambda random, name: per_device(random)],
}


def random_claims(random):
    return [
        claim(
            f"c{n}",
            *random.sample(REQUESTS, random.randint(1, 2)),
            constraints=random.choice(CONSTRAINTS),
        )
        for n in range(random.randint(1, 2))
    ]


class World:
    """Slices, nodes and allocated claims, with everything that is kept between attempts."""

    def __init__(self, version="1.37"):
        self.features = Features(reference=REFERENCES[version])
        self.table = NodeTable()
        self.nodes = {name: node(name, zone="a") for name in NODES}
        for each in self.nodes.values():
            self.table.set_node(each)
        self.known = {}
        self.slices = Slices(reference=self.features.reference)
        self.state = AllocatedState()
        self.allocated = []
        self.pools = PoolIndex(self.slices, self.state, self.features)
        self.column = SignatureColumn(self.table, self.pools, self.slices, self.state)

    def put(self, new):
        old = self.known.get(new.metadata.name)
        if old is not None:
            self.slices.remove(old)
        self.known[new.metadata.name] = new
        self.slices.add(new)

    def remove(self, number):
        if number < len(self.known):
            self.slices.remove(self.known.pop(sorted(self.known)[number]))

    def relabel(self, name):
        zone = "b" if self.nodes[name].metadata.labels["zone"] == "a" else "a"
        self.nodes[name] = node(name, zone=zone)
        self.table.set_node(self.nodes[name])

    def allocate(self, results):
        for result in results:
            self.allocated.append(result)
            self.state.add(result)

    def free(self, number):
        if number < len(self.allocated):
            self.state.remove(self.allocated.pop(number))

    def attempt(self):
        return Allocator(
            self.features,
            self.state,
            {"gpu": CLASS}.get,
            self.pools,
            NamedSelectors(),
            lambda: "share",
        )

    def twin(self):
        owners = [
            structs.replace(claim("x"), status=structs.replace(claim("x").status, allocation=each))
            for each in self.allocated
        ]
        return allocator(list(self.known.values()), [CLASS], owners, self.features)


def answer(made, on, claims):
    try:
        results = allocated_by(made, on, claims)
    except (AllocationError, InvalidPools) as error:
        return f"{type(error).__name__}: {error}"
    return None if results is None else [plain(each) for each in results]


def change(world, random, families):
    action = random.choice(["slice"] * 2 + ["no slice", "relabel", "free", "free"])
    if action == "slice":
        makers = FAMILIES[random.choice(families)]
        world.put(random.choice(makers)(random, random.choice(NODES)))
    elif action == "no slice":
        world.remove(random.randrange(6))
    elif action == "relabel":
        world.relabel(random.choice(NODES))
    else:
        world.free(random.randrange(4))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(120))
def test_every_node_gets_the_answer_it_would_get_by_itself(seed):
    for world, answers in compared_with_twins(seed):
        check_column(world, answers)


@pytest.mark.parametrize("seed", range(10))
def test_answers_are_the_same_if_little_is_remembered(seed, monkeypatch):
    monkeypatch.setattr(node_pools, "_NUMBERS_LIMIT", 2)
    monkeypatch.setattr(allocated_state, "_VERSIONS_LIMIT", 2)
    assert len(list(compared_with_twins(seed))) == 16


def test_a_pool_that_was_forgotten_counts_as_changed(monkeypatch):
    monkeypatch.setattr(allocated_state, "_VERSIONS_LIMIT", 2)
    state, pools = AllocatedState(), [(DRIVER, name) for name in "abcd"]
    seen = [state.pool_version(pool) for pool in pools]
    for name in "abc":
        state.add(share(name))
    assert all(state.pool_version(pool) != before for pool, before in zip(pools, seen, strict=True))


def test_a_pool_changes_when_a_device_is_taken_and_when_it_is_free_again():
    state, pool = AllocatedState(), (DRIVER, "a")
    versions = [state.pool_version(pool)]
    for change in (state.add, state.remove):
        change(share("a"))
        assert list(state.changed_pools) == [pool]
        state.changed_pools.clear()
        versions.append(state.pool_version(pool))
    assert len(set(versions)) == 3


def compared_with_twins(seed):
    """Few kinds of slices in each world, so that nodes are often alike, and almost alike."""
    random = Random(seed)
    world = World()
    families = random.sample(sorted(FAMILIES), 1 + seed % 2)
    for name in NODES:
        for family in families:
            for number, make in enumerate(FAMILIES[family]):
                world.put(make(Random(f"{seed} {number}"), name))
    for _ in range(16):
        if random.random() < 0.5:
            change(world, random, families)
        wanted, made = random_claims(random), world.attempt()
        answers = {name: answer(made, on, wanted) for name, on in world.nodes.items()}
        for name, on in world.nodes.items():
            assert answers[name] == answer(world.twin(), on, wanted)
        yield world, answers
        fitting = [name for name, found in answers.items() if isinstance(found, list)]
        if fitting and random.random() < 0.7:
            world.allocate(allocated_by(made, world.nodes[random.choice(fitting)], wanted))


def check_column(world, answers):
    """Equal entries mean equal answers; all entries are those of a fresh look."""
    column = world.column.sync()
    fits_by_signature = {}
    for name, found in answers.items():
        signature = int(column[world.table.row_of[name]])
        assert signature == world.pools.of(world.nodes[name]).signature
        if not isinstance(found, str):
            assert fits_by_signature.setdefault(signature, found is None) is (found is None)


def test_nodes_that_differ_in_names_only_are_searched_once():
    world = World()
    for name in NODES:
        world.put(resource_slice(f"local-{name}", "a", "b", pool=name, nodeName=name))
    made, wanted = world.attempt(), [claim("c")]
    solutions = {id(made.solve(on, wanted)) for on in world.nodes.values()}
    assert len(solutions) == 1
    results = {name: allocated_by(made, on, wanted)[0] for name, on in world.nodes.items()}
    assert {name: each.devices.results[0].pool for name, each in results.items()} == {
        name: name for name in NODES
    }
    world.allocate([results["n1"]])
    made = world.attempt()
    solutions = {name: id(made.solve(on, wanted)) for name, on in world.nodes.items()}
    assert solutions["n0"] == solutions["n2"] != solutions["n1"]
    assert isinstance(results["n1"], AllocationResult)


SHARED = {"shareID": "1", "consumedCapacity": {"mem": "1"}}


def share(name, **more):
    return convert(allocation(("r", name, "d0", more)), AllocationResult)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([], [share("n1")], id="in use"),
        pytest.param([share("n0", **SHARED)], [share("n1")], id="shared and exclusive"),
        pytest.param(
            [share("n0", **SHARED)],
            [share("n1", shareID="2", consumedCapacity={"mem": "2"})],
            id="consumption",
        ),
    ],
)
def test_nodes_are_told_apart_by_what_is_in_use(before, after):
    world = World()
    for name in NODES:
        world.put(resource_slice(f"local-{name}", "d0", "d1", pool=name, nodeName=name))
    world.allocate([*before, *after])
    signatures = [world.pools.of(world.nodes[name]).signature for name in NODES[:2]]
    assert signatures[0] != signatures[1]


@pytest.mark.parametrize(
    "content",
    [
        {"attributes": {"model": "x"}},
        {"capacity": {"mem": {"value": "1"}}},
        {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        {"bindingConditions": ["up"]},
        {"allowMultipleAllocations": True},
        {"bindsToNode": True},
    ],
)
def test_nodes_are_told_apart_by_the_content_of_devices(content):
    world = World()
    world.put(resource_slice("a", "d0", pool="n0", nodeName="n0"))
    world.put(resource_slice("b", device("d0", **content), pool="n1", nodeName="n1"))
    signatures = [world.pools.of(world.nodes[name]).signature for name in NODES[:2]]
    assert signatures[0] != signatures[1]


def test_nodes_are_told_apart_by_their_counters():
    world = World()
    for number, name in enumerate(NODES[:2]):
        sets = [{"name": "c", "counters": {"m": {"value": str(number)}}}]
        pool = {"pool": f"card-{name}", "count": 2}
        world.put(resource_slice(f"c-{name}", sharedCounters=sets, nodeName="x", **pool))
        world.put(resource_slice(f"d-{name}", "d0", nodeName=name, **pool))
    signatures = [world.pools.of(world.nodes[name]).signature for name in NODES[:2]]
    assert signatures[0] != signatures[1]
