"""CONTRIBUTING's checklist for a new plugin: each step that was forgotten fails here."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import kubesched.plugins
from kubesched.framework import EnqueueExtensions, FilterPlugin, Plugin, PreFilterPlugin
from kubesched.plugins.registry import IN_TREE, in_tree_registry

ROOT = Path(__file__).parents[3]
PLUGINS = {name: in_tree_registry().get(name) for name in IN_TREE}
CALL_ORDER = [
    "kinds_to_list",
    "__init__",
    "close",
    "less",
    "sort_key",
    "pre_enqueue",
    "pre_filter",
    "filter",
    "filter_nodes",
    "filter_rule",
    "add_pod",
    "remove_pod",
    "keys_affected_by",
    "post_filter",
    "pod_group_post_filter",
    "pre_score",
    "score",
    "score_nodes",
    "normalize_scores",
    "score_rule",
    "reserve",
    "unreserve",
    "placement_feasible",
    "permit",
    "pre_bind_pre_flight",
    "pre_bind",
    "bind",
    "post_bind",
    "events_to_register",
    "class_fields",
    "sign_pod",
]
"""How a plugin class reads: as the scheduler calls it, what is reused and what undoes a rejection
after the rule.
"""


def plugin_classes() -> set[type[Plugin]]:
    """Every concrete plugin class that a module of the package defines."""
    found = set()
    for info in pkgutil.walk_packages(kubesched.plugins.__path__, "kubesched.plugins."):
        for value in vars(importlib.import_module(info.name)).values():
            if (
                inspect.isclass(value)
                and issubclass(value, Plugin)
                and value.__module__.startswith("kubesched.plugins.")
                and not inspect.isabstract(value)
            ):
                found.add(value)
    return found


@functools.cache
def names_in_plugin_tests() -> set[str]:
    folders = (
        ROOT / "tests/unit/plugins",
        ROOT / "tests/unit/framework/preemption",
        ROOT / "tests/shared",
    )
    paths = [path for folder in folders for path in folder.rglob("*.py") if path != Path(__file__)]
    return {word for path in paths for word in re.findall(r"\w+", path.read_text())}


def snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z][a-z])", "_", name).lower()


def test_every_plugin_class_is_registered() -> None:
    assert plugin_classes() == set(PLUGINS.values())


@pytest.mark.parametrize("name", IN_TREE)
def test_a_plugin_is_found_under_its_name(name: str) -> None:
    module = IN_TREE[name].partition(":")[0].removeprefix("kubesched.plugins.")
    upstream_folders = {"NodeResourcesFit": "node_resources.fit", "PrioritySort": "queue_sort"}
    upstream_folders["NodeResourcesBalancedAllocation"] = "node_resources.balanced_allocation"
    assert PLUGINS[name].name == name
    assert module == upstream_folders.get(name, snake_case(name))


@pytest.mark.parametrize("name", IN_TREE)
def test_a_plugin_is_documented_and_tested(name: str) -> None:
    assert re.search(rf"\b{name}\b", (ROOT / "docs/reference/compatibility.md").read_text())
    assert name in names_in_plugin_tests()


@pytest.mark.parametrize("name", IN_TREE)
def test_a_plugin_that_rejects_says_what_can_undo_it(name: str) -> None:
    if issubclass(PLUGINS[name], FilterPlugin | PreFilterPlugin):
        assert issubclass(PLUGINS[name], EnqueueExtensions)


@pytest.mark.parametrize("name", IN_TREE)
def test_methods_are_in_the_order_in_which_the_scheduler_calls_them(name: str) -> None:
    methods = [method for method in vars(PLUGINS[name]) if method in CALL_ORDER]
    assert methods == sorted(methods, key=CALL_ORDER.index)


def test_listed_kinds_are_those_that_modules_look_up() -> None:
    """A kind passed to `listers.of` anywhere in a plugin's package is in the `lists` of some
    plugin.
    """
    declared = {getattr(k, "__name__", k) for p in PLUGINS.values() for k in p.lists}
    declared |= {"Pod", "Node", "PodGroup", "DeviceTaintRule"}  # always there, or behind gates
    looked_up = set()
    for folder in ("plugins", "preemption"):
        for path in (ROOT / "src/kubesched" / folder).rglob("*.py"):
            looked_up |= set(
                re.findall(r"listers(?:_of\([\w.]+\))?\.of\((\w+)\)", path.read_text())
            )
    assert {kind for kind in looked_up if kind[0].isupper()} <= declared
