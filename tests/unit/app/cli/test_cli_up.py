"""`kubesched up`: what it does before a cluster starts."""

from __future__ import annotations

import logging

from kubesched.app.cli import up
from kubesched.base import logs
from kubesched.base.errors import Conflict, Forbidden, NotFound


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
