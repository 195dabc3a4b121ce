"""A cluster that was restored from a backup is read as a whole before anything is scheduled."""

from __future__ import annotations

from random import Random
from unittest.mock import Mock

from kubesched.app.scheduler_app import SchedulerApp
from kubesched.config.features import FeatureGates
from kubesched.config.load import default_config


async def test_nothing_is_scheduled_while_kinds_are_listed_again():
    gates = FeatureGates()
    app = SchedulerApp(default_config(gates), gates, Mock(), Mock(), random=Random(1))
    restore, scheduler = app.informers.restore, app.assembly.scheduler
    nodes = Mock()
    nodes.name = "nodes"
    restore._reflectors = lambda: [nodes]
    assert scheduler.may_begin()
    restore.begin("pods")
    nodes.distrust.assert_called_once()
    restore.finish("nodes")
    assert not scheduler.may_begin()
    assert not scheduler._wake.is_set()
    restore.finish("pods")
    assert scheduler.may_begin()
    assert scheduler._wake.is_set()
