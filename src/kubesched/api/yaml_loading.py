"""A safe YAML loader that nested input cannot bring down.

libyaml's binding for Python composes nodes by recursion in C, without a limit: some ten thousand opening brackets
overflow the stack and end the process. The hooks it calls at every level are where the depth is counted.
"""

from __future__ import annotations

from typing import Final

import yaml

MAX_DEPTH: Final = 500
"""Levels of nesting. API objects need a dozen; schemas inside them a few dozen."""


class BoundedLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # which of the two exists is known at run time
    """`yaml.YAMLError` for what is nested too deeply."""

    _depth = 0

    def descend_resolver(self, current_node: object, current_index: object) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise yaml.composer.ComposerError(
                None, None, f"nested deeper than {MAX_DEPTH} levels", None
            )
        super().descend_resolver(current_node, current_index)

    def ascend_resolver(self) -> None:
        self._depth -= 1
        super().ascend_resolver()
