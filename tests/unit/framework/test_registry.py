"""Installed packages with plugins that cannot be used: a sentence each, and others go on."""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from kubesched.base.errors import ConfigError
from kubesched.base.version import __version__
from kubesched.framework import registry as module
from kubesched.framework.registry import RegistryError
from kubesched.plugins.registry import in_tree_registry
from kubesched.testing import Cluster

PLUGIN = """
from kubesched.framework import FilterPlugin


class Installed(FilterPlugin):
    name = "Installed"

    def filter(self, state, pod, node_info):
        return None
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a distribution with one module and entry points."""

    def made(dist, text=PLUGIN, requires="", names=("Installed",)):
        folder = tmp_path / dist
        folder.mkdir()
        (folder / f"{dist}_plugin.py").write_text(text)
        info = folder / f"{dist}-1.2.dist-info"
        info.mkdir()
        needs = f"Requires-Dist: {requires}\n" if requires else ""
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.2\n{needs}"
        )
        lines = [f"{name} = {dist}_plugin:Installed\n" for name in names]
        (info / "entry_points.txt").write_text("".join(["[kubesched.plugins]\n", *lines]))
        monkeypatch.syspath_prepend(str(folder))
        made_modules.append(f"{dist}_plugin")

    made_modules = []
    yield made
    for name in made_modules:
        sys.modules.pop(name, None)


def installed():
    registry = in_tree_registry()
    registry.add_installed()
    return registry


def test_metadata_is_read_again_only_when_a_package_came(install, monkeypatch):
    """Of all installed packages, which takes longer than the rest of a cluster in memory."""
    reads = []
    monkeypatch.setattr(
        module, "entry_points", lambda group: reads.append(group) or entry_points(group=group)
    )
    install("first")
    assert all("Installed" in installed().names() for _ in range(3))
    assert len(reads) == 1
    install("second", names=("Other",))
    assert "Other" in installed().names()
    folder = Path(sys.path[0])
    (folder / "second-1.2.dist-info").rename(folder / "gone")
    os.utime(folder, ns=(0, 0))  # the clock of the file system may not have moved on
    assert "Other" not in installed().names()
    assert len(reads) == 3


def test_two_packages_with_the_same_name_are_named(install):
    install("first")
    install("second", names=("Installed", "Other"))
    registry = installed()
    with pytest.raises(RegistryError) as refused:
        registry.get("Installed")
    assert str(refused.value) == (
        'plugin "Installed" is declared by second 1.2 and first 1.2: '
        "uninstall one, or name it MODULE:CLASS"
    )
    assert registry.get("Other") is not None
    assert registry.get("first_plugin:Installed") is not None


def test_a_package_cannot_take_the_name_of_a_default_plugin(install, caplog):
    install("usurper", names=("NodeName",))
    plugin = installed().get("NodeName")
    assert plugin is not None
    assert plugin.__module__.startswith("kubesched.plugins.")
    (record,) = caplog.records
    assert "declares a plugin with a name that is taken" in record.msg
    assert record.values == {"plugin": "NodeName", "package": "usurper 1.2"}


@pytest.mark.parametrize(
    "requires",
    ["kubesched>=99.1", "kubesched[testing] (>=99.1)", "kubesched<200,>=99.1", "kubesched~=99.1"],
)
def test_a_package_that_needs_a_newer_kubesched_is_refused(install, requires):
    install("ahead", requires=requires)
    with pytest.raises(RegistryError) as refused:
        installed().get("Installed")
    assert str(refused.value) == (
        f'plugin "Installed" of ahead 1.2 needs kubesched 99.1 or newer, this is {__version__}'
    )


@pytest.mark.parametrize(
    "requires",
    ["", f"kubesched>={__version__}", "kubesched<99", "kubesched-plugins>=99", "numpy>=99"],
)
def test_other_requirements_do_not_matter(install, requires):
    install("fine", requires=requires)
    assert installed().get("Installed") is not None


def test_a_plugin_that_is_slow_to_import_is_named(install, monkeypatch, caplog):
    monkeypatch.setattr(module, "SLOW_IMPORT_S", -1.0)
    install("slow")
    assert installed().get("Installed") is not None
    (record,) = caplog.records
    assert record.msg == "A plugin was slow to import"
    assert record.values["plugin"] == "Installed"


@pytest.mark.parametrize("name", ['""', "7"])
def test_a_plugin_needs_a_text_as_its_name(install, name):
    install("nameless", PLUGIN.replace('"Installed"', name))
    with pytest.raises(RegistryError, match='"Installed" has no name: set the class attribute'):
        installed().get("Installed")


def test_a_module_that_exits_is_an_error_of_the_plugin(install):
    install("exiting", "raise SystemExit(3)\n")
    with pytest.raises(RegistryError, match='"Installed" cannot be imported: SystemExit: 3'):
        installed().get("Installed")


def test_a_plugin_that_was_uninstalled_is_said_to_be_missing():
    config = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {filter: {enabled: [{name: Installed}]}}}]
"""
    with pytest.raises(ConfigError, match='FilterPlugin "Installed" does not exist'):
        Cluster([], config)
