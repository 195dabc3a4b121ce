"""Selectors over the variable `device`: what they see, and the words for what goes wrong."""

import pytest
from dra_objects import device
from msgspec import convert

from kubesched.api.resource_v1 import Device
from kubesched.plugins.dynamic_resources.structured.selectors import (
    DeviceContent,
    DeviceSelectors,
    SelectorFailure,
)

GPU = device(
    "a",
    attributes={
        "model": "a100",
        "index": 3,
        "healthy": True,
        "firmware": {"version": "2.1.0"},
        "example.com/rack": "r1",
    },
    capacity={"memory": {"value": "40Gi"}},
)


def content(described=GPU, driver="gpu.example.com"):
    return DeviceContent(driver, convert(described, Device))


def matches(expression, described=GPU, **options):
    return DeviceSelectors(**options).matches(expression, content(described))


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "gpu.example.com"',
        'device.attributes["gpu.example.com"].model == "a100"',
        'device.attributes["example.com"].rack == "r1"',
        'device.attributes["gpu.example.com"].index > 2',
        'device.attributes["gpu.example.com"].healthy',
        'device.attributes["gpu.example.com"].firmware.isGreaterThan(semver("2.0.0"))',
        'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) == 0',
        '!has(device.attributes["unknown.example.com"].model)',
        '!("unknown.example.com" in device.attributes)',
        "!device.allowMultipleAllocations",
    ],
)
def test_what_expressions_see(expression):
    assert matches(expression) is True


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (
            'device.attributes["gpu.example.com"].missing == 1',
            "CEL runtime error: no such key: missing",
        ),
        ("device.unknown == 1", "CEL compile error: compilation failed: ERROR: <input>:1:7: "),
        (
            "device.driver",
            "CEL compile error: must evaluate to bool or the unknown type, not string",
        ),
        ("int('x') == 1", "CEL compile error: program instantiation failed: "),
        (
            'device.attributes["gpu.example.com"].index',
            "CEL runtime error: CEL result of type int could not be converted to bool: ",
        ),
    ],
)
def test_what_goes_wrong_is_told_in_upstream_s_words(expression, problem):
    selectors = DeviceSelectors()
    for _ in range(2):  # the second time from what is kept
        with pytest.raises(SelectorFailure) as caught:
            selectors.matches(expression, content())
        assert str(caught.value).startswith(problem)


@pytest.mark.parametrize(
    ("attribute", "problem"),
    [
        ({}, "unsupported attribute value"),
        ({"strings": ["a"]}, "unsupported attribute value"),
        ({"version": "1.x"}, "parse semantic version: "),
    ],
)
def test_one_attribute_without_a_usable_value_fails_every_expression(attribute, problem):
    with pytest.raises(SelectorFailure) as caught:
        matches("true", device("a", attributes={"odd": attribute}))
    assert str(caught.value).startswith(f"CEL runtime error: attribute odd: {problem}")


def test_sharing_is_visible_only_with_consumable_capacity():
    shared = device("a", allowMultipleAllocations=True)
    assert matches("device.allowMultipleAllocations", shared)
    with pytest.raises(SelectorFailure, match="CEL compile error"):
        matches("device.allowMultipleAllocations", shared, consumable_capacity=False)


def test_answers_are_kept_by_content_not_by_name():
    class Counting(DeviceSelectors):
        evaluated = 0

        def _evaluate(self, expression, content):
            self.evaluated += 1
            return super()._evaluate(expression, content)

    selectors = Counting()
    for name in ("a", "b"):
        assert selectors.matches("true", content({**GPU, "name": name}))
    assert selectors.evaluated == 1
    assert selectors.matches("true", content(device("c")))
    assert selectors.evaluated == 2
