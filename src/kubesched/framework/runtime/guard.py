"""Checks on what plugins return, and error statuses for what they raise."""

from __future__ import annotations

import traceback

import numpy as np

from kubesched.base.errors import KubeschedError, describe
from kubesched.base.logs import get_logger
from kubesched.framework.engine import InTreePlugin
from kubesched.framework.interfaces import Plugin
from kubesched.framework.nodes.columns import Levels, Mask
from kubesched.framework.status import Status, error_status
from kubesched.framework.verdicts import Verdicts

log = get_logger(__name__)

MAX_LOGGED = 1000
_KEPT = tuple(map(np.dtype, (np.int64, np.int32, np.int16)))
"""Types of scores that are not converted."""
_logged: set[tuple[str, int, type[Exception]]] = set()
"""File, line and type of exceptions whose traceback was logged."""


class WrongAnswer(KubeschedError, TypeError):
    """A plugin returned a value that its interface does not allow."""


class WrappedError(Exception):
    """An error with a prefix; the original is its cause."""

    def __init__(self, prefix: str, cause: Exception | str) -> None:
        super().__init__(f"{prefix}{cause}")
        if isinstance(cause, Exception):
            self.__cause__ = cause


def failure(prefix: str, status: Status, *, plugin: str = "") -> Status:
    """An Error status for a plugin that returned an error or an unexpected code.

    Wait and Skip carry no error; their code is named instead.
    """
    cause = status.as_error() or f'unexpected status "{status.code.upstream_name}"'
    return error_status(WrappedError(prefix, cause), plugin=plugin)


def rejection_or_failure(prefix: str, status: Status, plugin: str) -> Status:
    """The plugin's rejection under its name, or an Error status for any other code."""
    return (
        status.with_plugin(plugin) if status.is_rejected else failure(prefix, status, plugin=plugin)
    )


def raised(prefix: str, error: Exception, *, plugin: str = "") -> Status:
    """An Error status for a plugin that raised. The traceback is logged once per source line."""
    _log_once(prefix, error)
    wrapped = WrappedError(prefix, describe(error))
    wrapped.__cause__ = error
    return error_status(wrapped, plugin=plugin)


def _log_once(prefix: str, error: Exception) -> None:
    """Log one traceback per source line, others at -v=4: a plugin bug usually hits every pod."""
    if isinstance(error, KubeschedError):
        return  # raised on purpose; its message is sufficient
    frames = traceback.extract_tb(error.__traceback__)
    place = (frames[-1].filename, frames[-1].lineno or 0, type(error)) if frames else None
    is_new = place is not None and place not in _logged and len(_logged) < MAX_LOGGED
    if place is not None and is_new:
        _logged.add(place)
    log.info(
        "Plugin raised an exception",
        v=0 if is_new else 4,
        what=prefix.rstrip(": "),
        err=describe(error),
        stack="".join(traceback.format_exception(error)),
    )


def as_status(plugin: Plugin, answer: object) -> Status | None:
    """The answer if it is a status or None; raises for anything else."""
    if answer is None or isinstance(answer, Status):
        return answer
    raise WrongAnswer(
        f"{plugin.name} returned {type(answer).__name__} where a Status or None was expected"
    )


def checked_rejections(plugin: Plugin, verdicts: Verdicts, length: int) -> Mask:
    """Where the plugin rejects nodes."""
    codes: object = verdicts.codes
    if (
        not isinstance(codes, np.ndarray)
        or codes.shape != (length,)
        or codes.dtype.kind not in "biu"
    ):
        raise WrongAnswer(
            f"{plugin.name} must return one integer or boolean verdict for each of {length} nodes"
        )
    return verdicts.rejected


def checked_scores(plugin: Plugin, scores: object, length: int) -> Levels:
    """Raw scores with 64 bits, so that an author's `normalize_scores` may multiply them.

    In-tree plugins return 32 bits where they know that nothing overflows.
    """
    levels = checked_levels(plugin, scores, length)
    if levels.dtype == np.int32 and isinstance(plugin, InTreePlugin):
        return levels
    return levels.astype(np.int64, copy=False)


def checked_levels(plugin: Plugin, scores: object, length: int) -> Levels:
    """The scores as they are, or as 64-bit integers."""
    if not isinstance(scores, np.ndarray) or scores.shape != (length,):
        raise WrongAnswer(f"{plugin.name} must return one score for each of {length} nodes")
    if scores.dtype.kind not in "iu":
        raise WrongAnswer(f"{plugin.name} must return integer scores, not {scores.dtype}")
    return scores if scores.dtype in _KEPT else scores.astype(np.int64, copy=False)
