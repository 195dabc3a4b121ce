"""Proves that files of the past are refused with the names of their successors."""

from __future__ import annotations

import pytest

from kubesched.base.errors import ConfigError
from kubesched.config.default_plugins import IN_TREE_PLUGINS
from kubesched.config.legacy import plugin_hint
from kubesched.config.load import load


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(text.encode())
    return [str(problem) for problem in caught.value.problems]


def test_a_policy_is_refused_by_its_kind():
    (problem,) = problems("apiVersion: v1\nkind: Policy\npredicates:\n- name: HostName\n")
    assert problem == (
        'apiVersion: no kind "Policy" is registered for version "v1"; scheduling policies were '
        "removed in Kubernetes 1.23: write a KubeSchedulerConfiguration; the supported version is "
        '"kubescheduler.config.k8s.io/v1" (line 1, column 13)'
    )


def test_no_living_plugin_is_called_dead():
    assert [name for name in IN_TREE_PLUGINS if plugin_hint(name)] == []
