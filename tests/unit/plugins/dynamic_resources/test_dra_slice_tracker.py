"""Slices as the allocator sees them, with and without taint rules."""

from dra_objects import resource_slice
from msgspec import convert

from kubesched.api.resource_v1beta2 import DeviceTaintRule
from kubesched.insight.state.memory import MemoryLister
from kubesched.plugins.dynamic_resources.slice_tracker import SliceTracker


def rule(name, **selector):
    return convert(
        {
            "metadata": {"name": name},
            "spec": {
                "deviceSelector": selector,
                "taint": {"key": name, "effect": "NoSchedule"},
            },
        },
        DeviceTaintRule,
    )


def taints(tracker):
    return {
        device.name: [taint.key for taint in device.taints or ()]
        for each in tracker.slices.candidates("n1")
        for device in each.spec.devices
    }


def test_slices_come_and_go():
    lister = MemoryLister()
    lister.put(resource_slice("a", "x"))
    tracker = SliceTracker(lister)
    lister.put(resource_slice("b", "y"))
    assert taints(tracker) == {"x": [], "y": []}
    lister.put(resource_slice("b", "z", nodeName="n2"))
    lister.remove("", "a")
    assert taints(tracker) == {}


def test_rules_taint_the_devices_they_select():
    slices, rules = MemoryLister(), MemoryLister()
    slices.put(resource_slice("a", "x", "y"))
    rules.put(rule("early", device="x"))
    tracker = SliceTracker(slices, rules)
    slices.put(resource_slice("b", "z"))
    rules.put(rule("all"))
    rules.put(rule("other", driver="other.example.com"))
    assert taints(tracker) == {"x": ["early", "all"], "y": ["all"], "z": ["all"]}
    rules.put(rule("all", pool="b"))
    assert taints(tracker) == {"x": ["early"], "y": [], "z": ["all"]}
    rules.remove("", "all")
    slices.put(resource_slice("a", "x"))
    assert taints(tracker) == {"x": ["early"], "z": []}
    slices.remove("", "a")
    assert taints(tracker) == {"z": []}
