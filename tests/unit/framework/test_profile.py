"""From configured profiles to plugin instances: arguments, unknown and broken plugins, and the
capability table.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from frameworks import default_framework

from kubesched.base.errors import ConfigError
from kubesched.config import default_plugins
from kubesched.config.features import DEFAULT_GATES, defaults
from kubesched.config.load import load
from kubesched.config.types import ExtensionPoint
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import EXTENSION_POINTS, FilterPlugin
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.profile import build_frameworks
from kubesched.framework.registry import Registry, RegistryError
from kubesched.plugins.registry import IN_TREE, in_tree_registry

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    filter:
      enabled:
      - name: {name}
  pluginConfig:
  - name: {name}
    args: {args}
"""


@dataclass(frozen=True)
class RackArgs:
    rack: str = "a"
    limit: int = 3


class TypedRack(FilterPlugin):
    name = "TypedRack"
    args_type = RackArgs

    def filter_nodes(self, state, pod, nodes):
        return None


class PlainRack(TypedRack):
    name = "PlainRack"
    args_type = None


class BrokenRack(TypedRack):
    name = "BrokenRack"

    def __init__(self, args, handle):
        raise RuntimeError("no racks here")


def build(name: str, args: str):
    config = load(CONFIG.format(name=name, args=args).encode())
    registry = in_tree_registry()
    for plugin in (TypedRack, PlainRack, BrokenRack):
        registry.register(plugin.name, lambda plugin=plugin: plugin)
    handle = Handle(table=NodeTable())
    frameworks = build_frameworks(config.profiles, registry, lambda _name: handle, DEFAULT_GATES)
    return {plugin.name: plugin for plugin in frameworks["default-scheduler"].plugins}


def test_arguments_arrive_as_the_declared_record() -> None:
    assert build("TypedRack", "{rack: b}")["TypedRack"].args == RackArgs("b", 3)


def test_a_plugin_without_a_record_gets_plain_data() -> None:
    assert build("PlainRack", "{rack: [1, 2]}")["PlainRack"].args == {"rack": [1, 2]}


def test_wrong_arguments_name_plugin_and_field() -> None:
    with pytest.raises(ConfigError, match=r'initializing plugin "TypedRack".*limit'):
        build("TypedRack", "{limit: many}")


def test_a_constructor_that_raises_names_its_plugin() -> None:
    with pytest.raises(
        ConfigError, match='initializing plugin "BrokenRack": RuntimeError: no racks here'
    ):
        build("BrokenRack", "{}")


def test_a_third_party_plugin_runs_after_the_default_filters() -> None:
    assert list(build("TypedRack", "{}")).index("TypedRack") > 0


def test_a_name_is_registered_once() -> None:
    registry = in_tree_registry()
    with pytest.raises(RegistryError, match="a plugin named DefaultBinder already exists"):
        registry.register("DefaultBinder", lambda: TypedRack)
    with pytest.raises(RegistryError, match="no plugin named Absent exists"):
        registry.unregister("Absent")


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        pytest.param(
            "kubesched.nowhere:X", "cannot be imported", id="a module that does not exist"
        ),
        pytest.param(
            "kubesched.base.errors:Missing", "has no Missing", id="a class that does not exist"
        ),
        pytest.param(
            "kubesched.base.errors:NotFound",
            "not a class derived from",
            id="a class that is no plugin",
        ),
        pytest.param(
            "kubesched.framework.interfaces:BindPlugin",
            "does not implement bind",
            id="an abstract plugin",
        ),
    ],
)
def test_what_cannot_be_loaded_by_path_is_said_clearly(path: str, complaint: str) -> None:
    with pytest.raises(RegistryError, match=complaint):
        Registry().get(path)


@pytest.mark.parametrize(("version", "are_there"), [("1.37", True), ("1.36", False)])
def test_pre_filters_that_came_with_1_37(version: str, are_there: bool) -> None:
    framework = default_framework(NodeTable(), gates=defaults(version))
    names = [plugin.name for plugin in framework.pre_filter]
    new = ["NodeName", "NodeUnschedulable", "TaintToleration"]
    assert names[:4] == [*new, "NodeAffinity"] if are_there else not set(names) & set(new)


@pytest.mark.parametrize("name", sorted(IN_TREE))
def test_the_capability_table_tells_the_truth(name: str) -> None:
    """`config view` works without importing plugins, from a table; this is what keeps the table
    honest.
    """
    registry = in_tree_registry()
    for point in ExtensionPoint:
        if point.value in EXTENSION_POINTS:
            declared = default_plugins.implements(name, point)
            assert registry.implements(name, point.value) == declared, point.value
