"""The pytest plugin: fixtures for tests of scheduler plugins.

| Fixture | Is |
|---|---|
| `world` | a `kubesched.testing.Cluster`: the scheduler in memory, in virtual time |
| `cluster` | a `LocalCluster`: `kubesched up`, with an API server over HTTPS |
| `scheduler_config` | the configuration of both, as YAML; override it in a module or a conftest |
| `scheduler_plugins` | plugin classes for `world` that are not installed; override it likewise |

Every pytest run of an environment with kubesched loads this module: it imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kubesched.framework import Plugin
    from kubesched.insight.state.cluster import Cluster
    from kubesched.testing.local_cluster import LocalCluster


@pytest.fixture
def scheduler_config() -> str | None:
    """The default configuration."""
    return None


@pytest.fixture
def scheduler_plugins() -> Sequence[type[Plugin]]:
    """None but the installed ones."""
    return ()


@pytest.fixture
def world(
    scheduler_config: str | None, scheduler_plugins: Sequence[type[Plugin]]
) -> Iterator[Cluster]:
    """A scheduler in memory over no objects, closed after the test."""
    from kubesched.insight.state.cluster import Cluster

    with Cluster(config=scheduler_config, plugins=scheduler_plugins) as started:
        yield started


@pytest.fixture
def cluster(scheduler_config: str | None, tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster of three nodes in a process of its own, stopped after the test."""
    from kubesched.testing.local_cluster import LocalCluster

    with LocalCluster(tmp_path, scheduler_config) as started:
        yield started
