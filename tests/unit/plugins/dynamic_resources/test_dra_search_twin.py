"""The search against a plain twin in which every step looks at everything anew.

The twin is `scalar.devices`, which is tried on simulated decisions, too.
"""

from random import Random

import pytest
from dra_objects import (
    allocated_by,
    allocation,
    allocator,
    claim,
    device,
    exactly,
    first_available,
    node,
    resource_slice,
)
from msgspec import to_builtins
from scalar.devices import LIMIT, Refused, Search

from kubesched.config.references import REFERENCES
from kubesched.plugins.dynamic_resources.structured.failures import AllocationError, InvalidPools
from kubesched.plugins.dynamic_resources.structured.features import Features

POOL = "p"
NUMA = "gpu.example.com/numa"
TAINT = {"key": "bad", "effect": "NoSchedule"}
TOLERATION = {"key": "bad", "operator": "Exists"}


def expected(devices, counters, claims, held, reference):
    twin = Search(devices, counters, list(map(to_builtins, claims)), held, reference, POOL)
    try:
        if not twin.run():
            return None
    except Refused as error:
        return str(error)
    return [
        [(f"d{n}", twin.is_shareable(n)) for k, _, _, n in twin.picks if k == c]
        for c in range(len(claims))
    ]


def got(devices, counters, claims, held, reference):
    sets = [{"name": "c", "counters": {"m": {"value": str(counters)}}}]
    slices = [
        resource_slice("s0", pool=POOL, count=2, sharedCounters=sets),
        resource_slice("s1", *devices, pool=POOL, count=2),
    ]
    holders = [
        claim("h", status={"allocation": allocation(("r", POOL, f"d{n}", more))})
        for n, more in held
    ]
    made = allocator(slices, None, holders, Features(reference=reference))
    try:
        results = allocated_by(made, node(), claims)
    except AllocationError as error:
        return str(error)
    except InvalidPools as error:
        raise AssertionError(error) from error
    if results is None:
        return None
    return [
        [(r.device, r.share_id is not None) for r in each.devices.results or ()] for each in results
    ]


# -- random cases ----------------------------------------------------------------------------------


def random_device(random, number):
    fields, attributes = {}, {}
    if random.random() < 0.6:
        attributes["numa"] = random.randrange(2)
    if random.random() < 0.3:
        attributes["big"] = True
    if random.random() < 0.05:
        attributes["odd"] = True
    if random.random() < 0.2:
        fields["taints"] = [TAINT]
    if random.random() < 0.4:
        fields["consumesCounters"] = [
            {"counterSet": "c", "counters": {"m": {"value": str(random.randint(1, 3))}}}
        ]
    if random.random() < 0.4:
        fields["allowMultipleAllocations"] = True
    if random.random() < 0.4:
        fields["capacity"] = {"mem": {"value": str(random.randint(1, 4))}}
    return device(f"d{number}", attributes=attributes, **fields)


def random_request(random, name):
    fields = {}
    if random.random() < 0.2:
        fields["selectors"] = [random.choice(["big=True", "broken if odd"])]
    if random.random() < 0.3:
        fields["tolerations"] = [TOLERATION]
    if random.random() < 0.3:
        fields["capacity"] = {"requests": {"mem": str(random.randint(1, 3))}}
    if random.random() < 0.15:
        fields["mode"] = "All"
    return exactly(name, count=random.choice([1, 1, 2, 2, 3, 5, 20]), **fields)


def random_claim(random, name):
    requests = []
    for n in range(random.randint(1, 3)):
        if random.random() < 0.3:
            subs = [random_request(random, f"s{k}") for k in range(random.randint(1, 3))]
            requests.append(first_available(f"r{n}", *subs))
        else:
            request = random_request(random, f"r{n}")
            if random.random() < 0.15:
                request["exactly"]["adminAccess"] = True
            requests.append(request)
    constraints = []
    if random.random() < 0.4:
        kind = random.choice(["matchAttribute", "distinctAttribute"])
        constraints = [{kind: NUMA}]
        if random.random() < 0.4:
            constraints[0]["requests"] = [random.choice(["r0", "r1", "r0/s0"])]
    return claim(name, *requests, constraints=constraints)


def random_case(random):
    devices = [random_device(random, n) for n in range(random.choice([0, 1, 3, 5, 6]))]
    held = []
    for number, each in enumerate(devices):
        if random.random() < 0.25:
            more = {}
            if each.get("allowMultipleAllocations"):
                more = {"shareID": f"share-{number}"}
                if "capacity" in each:
                    more["consumedCapacity"] = {"mem": "1"}
            held.append((number, more))
    claims = [random_claim(random, f"c{n}") for n in range(random.randint(1, 3))]
    return devices, random.randint(0, 8), claims, held


def case_at_the_limit(random):
    """Every request can be had from the first devices on: the twin would not come to an end."""
    devices = [device(f"d{n}", allowMultipleAllocations=True) for n in range(LIMIT + 2)]
    counts = [1, 5, 12, 20, LIMIT, LIMIT + 1]
    claims = []
    for number in range(2):
        requests = []
        for n in range(random.randint(1, 3)):
            subs = [exactly(f"s{k}", count=random.choice(counts)) for k in range(3)]
            alternatives = first_available(f"r{n}", *subs[: random.randint(1, 3)])
            requests.append(random.choice([alternatives, exactly(f"r{n}", random.choice(counts))]))
        claims.append(claim(f"c{number}", *requests))
    return devices, 0, claims, []


@pytest.mark.parametrize("version", sorted(REFERENCES))
@pytest.mark.parametrize("seed", range(40))
def test_the_search_finds_what_its_twin_finds(version, seed):
    random = Random(seed)
    for number in range(30):
        make = random_case if number % 5 else case_at_the_limit
        devices, counters, claims, held = make(random)
        arguments = (devices, counters, claims, held, REFERENCES[version])
        assert got(*arguments) == expected(*arguments)


def test_the_cases_have_all_outcomes():
    random, outcomes = Random(1), []
    for number in range(600):
        make = random_case if number % 5 else case_at_the_limit
        devices, counters, claims, held = make(random)
        outcomes.append(got(devices, counters, claims, held, REFERENCES["1.37"]))
    errors = [each for each in outcomes if isinstance(each, str)]
    assert sum(each is None for each in outcomes) > 100
    assert sum(isinstance(each, list) for each in outcomes) > 50
    for text in ("CEL runtime error", "claim constraint", "exceeds the claim limit"):
        assert any(text in each for each in errors), text
