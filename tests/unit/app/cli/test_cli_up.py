"""`kubesched up`: what it does before a cluster starts."""

from __future__ import annotations

import argparse
import logging

import pytest

from kubesched.app.cli import up
from kubesched.base import logs
from kubesched.base.errors import Conflict, Forbidden, NotFound
from kubesched.scheduler.groups.results import PodGroupUnschedulable


def test_errors_that_are_retried_are_not_told(capsys):
    def wrapped(cause):
        error = RuntimeError(f'running Bind plugin "DefaultBinder": {cause}')
        error.__cause__ = cause
        return error

    log = logs.get_logger("kubesched.test")
    before = logging.getLogger().handlers[:]
    try:
        up._configure_logging(None)
        log.error("Error updating pod", NotFound('pods "a" not found'))
        log.error("Error updating pod", Conflict("the object has been modified"))
        log.error("Error scheduling pod; retrying", wrapped(NotFound('pods "a" not found')))
        log.warning("Failed; trying again", err=Forbidden("pods is forbidden: exceeded quota: q"))
        log.error("Error scheduling pod; retrying", PodGroupUnschedulable())
        assert capsys.readouterr().err == ""
        log.error("Error scheduling pod; retrying", wrapped(Forbidden("not allowed")))
        log.error("No profile for the scheduler name of a pod")
        assert len(capsys.readouterr().err.splitlines()) == 2
        up._configure_logging(0)
        log.error("Error updating pod", NotFound('pods "a" not found'))
        assert "not found" in capsys.readouterr().err
    finally:
        logging.getLogger().handlers[:] = before
        logging.captureWarnings(False)
        logs.set_verbosity(0)


@pytest.mark.parametrize(
    ("words", "scheduler", "cluster"),
    [
        ((), "1.37", "1.37"),
        (("--kubernetes-version", "1.36"), "1.36", "1.36"),
        (("--reference-version", "1.36"), "1.36", "1.36"),
        (("--reference-version", "1.36", "--kubernetes-version", "1.37"), "1.36", "1.37"),
    ],
)
def test_the_releases_of_scheduler_and_cluster(words, scheduler, cluster):
    parser = argparse.ArgumentParser()
    up.add_arguments(parser)
    settings = up._settings(parser.parse_args(words))
    assert settings.gates.reference.version == scheduler
    assert settings.cluster_gates.reference.version == cluster
