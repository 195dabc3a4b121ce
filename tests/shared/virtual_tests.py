"""Async tests in the virtual time of `tests/unit/client/virtual_time`."""

from __future__ import annotations

import functools
import inspect


def virtual(test):
    """Run an async test in virtual time."""

    @functools.wraps(test)
    def run(in_virtual_time, **fixtures):
        return in_virtual_time(lambda: test(**fixtures))

    names = ["in_virtual_time", *inspect.signature(test).parameters]
    run.__signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    )
    return run
