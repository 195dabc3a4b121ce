"""The worst case of what selectors cost, as kube-apiserver 1.36.4 estimates it."""

import pytest
from msgspec import convert

from kubesched.api import cel
from kubesched.api.cel import types
from kubesched.api.cel.estimates import MAX
from kubesched.api.resource_v1 import Device
from kubesched.plugins.dynamic_resources.structured.selectors import (
    COST_LIMIT,
    DeviceContent,
    device_environment,
    worst_cost,
)

# Recorded from upstream's compiler of device selectors.
ESTIMATES = [
    ("true", 0),
    ('device.driver == "gpu.example.com"', 4),
    ('device.attributes["d"].model == "a100"', 5),
    ('device.attributes["d"].exists(k, k == "a")', 196),
    ("device.attributes.all(d, device.attributes[d].size() > 0)", 291),
    ('cel.bind(m, device.attributes["d"], m.x == "a" || m.y.matches("b+"))', 25),
    ('device.capacity["d"].memory.compareTo(quantity("1Gi")) >= 0', 7),
    ('quantity("1") != quantity("2")', 1844674407370955266),
    ("lists.range(90000).all(x, x > 0)", 540012),
    ("lists.range(1000000).all(x, x > 0)", 6000012),
    ('device.driver.split(".").map(s, s + device.driver).join(",").size() > 3', MAX),
    ('device.driver.replace("a", device.driver).replace("b", device.driver) == ""', 813),
    ('device.driver.replace("", "xyz").size() > 3', 17),
    ('["b", "a"].sort()[0] == "a"', 32),
    ('["b", "a"].distinct().reverse().slice(0, 1) == ["b"]', 67),
    ('[["a"], ["b"]].flatten(2).size() > 0', 47),
    ('sets.contains(device.driver.split("."), ["a"])', 89),
    ('cidr("10.0.0.0/8").containsIP(device.attributes["d"].addr)', 16),
    ('cidr("10.0.0.0/8").containsCIDR("10.1.0.0/16")', 10),
    ('url(device.driver) == url("a")', 11),
    ("!format.dns1123Label().validate(device.driver).hasValue()", 229),
    ('strings.quote(strings.quote(device.driver.findAll("a")[0])) == ""', 1844674407370955274),
    ('string(bytes(device.driver)) == "a"', 36),
    ('"%s".format([device.driver]) == "a"', 14),
    ('device.?driver.orValue("") == "a"', 4),
    ('{"k": device.driver}.transformMap(k, v, v + k)["k"] == "a"', 77),
    ('has(device.attributes["d"].x) ? device.attributes["d"].x == 1 : false', 8),
    ('device.attributes["d"].x in ["a", "b", "c"]', 17),
    ('optional.of(device.driver).optMap(v, v + v).orValue("") == "a"', 1844674407370955287),
    ('semver("1.2.3").isLessThan(device.attributes["d"].version)', 6),
    ('ip(device.attributes["d"].addr).isLoopback()', 12),
    ("dyn(device.driver) == dyn([1, 2])", 15),
    ("[3, 1, 2].sortBy(x, -x)[0] == 3", 106),
    ('device.driver.substring(3).indexOf("x") > 1', 17),
]


@pytest.mark.parametrize(("expression", "cost"), ESTIMATES)
def test_estimates_are_upstreams(expression, cost):
    assert worst_cost(expression, device_environment()) == cost


def test_the_key_of_an_attribute_counts_as_long_as_its_value():
    """Upstream's paths of both variables share memory: 36 characters are compared, not the 32 of an
    identifier.
    """
    expression = 'device.attributes["d"].exists(k, v, k == "{}" && v == device.driver)'
    assert worst_cost(expression.format("x" * 36), device_environment()) == 612


@pytest.mark.parametrize(
    "expression", [expression for expression, cost in ESTIMATES if cost <= COST_LIMIT]
)
def test_evaluation_costs_no_more_than_estimated(expression):
    names = ("model", "x", "y", "addr", "version")
    device = {
        "name": "a",
        "attributes": {f"d/{name}": {"string": "x" * 64} for name in names},
        "capacity": {"d/memory": {"value": "64Gi"}},
    }
    environment = device_environment()
    content = DeviceContent("d" * 63, convert(device, Device))
    run = cel.compile(expression, environment).run({"device": content.variable()})
    assert run.cost <= worst_cost(expression, environment)


def test_sizes_are_the_callers():
    environment = cel.Environment({"texts": types.list_of(types.STRING)}, cel.KUBERNETES)
    sizes = {("texts",): 10, ("texts", "@items"): 100}
    # The list and the result 1 each; 10 times the condition 2, the accumulator and the text 1 each,
    # reading 1 character 1.
    cost = cel.estimate_cost("texts.all(t, t == 'a')", environment, sizes.get)
    assert cost == 2 + 10 * (2 + 1 + 1 + 1)
    assert cel.estimate_cost("texts.all(t, t == 'a')", environment, {}.get) == MAX


def test_an_expression_that_does_not_compile_has_no_estimate():
    with pytest.raises(cel.CompileError):
        cel.estimate_cost("1 +", device_environment(), lambda _path: None)
