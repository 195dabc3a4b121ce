"""Plugin arguments as a plugin's constructor receives them."""

from __future__ import annotations

from typing import TypeVar, cast

from kubesched.base.errors import ConfigError
from kubesched.config.plugin_args import PluginArgs, with_defaults
from kubesched.config.plugin_args_validation import validate_args
from kubesched.framework.handle import Handle

A = TypeVar("A", bound=PluginArgs)


def checked_args(args: A | None, args_type: type[A], handle: Handle) -> A:
    """Validated arguments with defaults filled in; all defaults if `args` is None.

    Raises:
        ConfigError: lists every problem found.
    """
    gates = handle.feature_gates
    complete = cast("A", with_defaults(args_type() if args is None else args, gates))
    problems = list(validate_args("args", complete, gates))
    if problems:
        raise ConfigError(problems)
    return complete
