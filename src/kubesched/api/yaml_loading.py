"""A safe YAML loader that limits nesting and aliases.

libyaml's Python binding composes nodes recursively in C, without a limit: some ten thousand opening
brackets overflow the stack and end the process. The depth is counted in the hooks that it calls at
every level.

Aliases are shared nodes, cheap until the value is walked or encoded: nine levels of nine aliases
each are a few hundred bytes of YAML and hundreds of millions of values. They are counted before
anything is constructed.
"""

from __future__ import annotations

from typing import Final

import yaml

MAX_DEPTH: Final = 500
"""Levels of nesting. API objects need a dozen; schemas inside them a few dozen."""

MAX_ALIASED_NODES: Final = 400_000
"""Nodes that aliases may add to the document, each alias counted with its whole subtree."""


class BoundedLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # which of the two exists is known at run time
    """Raises `yaml.YAMLError` for input nested too deeply or multiplied by aliases."""

    _depth = 0

    def __init__(self, text: bytes | str) -> None:
        super().__init__(text)
        # Aliases need an asterisk, and walking a large document is slow.
        self._may_have_aliases = b"*" in text if isinstance(text, bytes) else "*" in text

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None and self._may_have_aliases:
            check_aliases(node)
        return node

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


def check_aliases(root: yaml.Node) -> None:
    """Raises `yaml.YAMLError` if aliases are circular, or expand or nest the document too far."""
    sizes: dict[int, int] = {}  # nodes of a subtree, aliases expanded
    depths: dict[int, int] = {}
    open_nodes: set[int] = set()
    stack = [root]
    while stack:
        node = stack[-1]
        key = id(node)
        if key in sizes:
            stack.pop()
            continue
        children = _children(node)
        if key not in open_nodes:
            open_nodes.add(key)
            for child in children:
                if id(child) in open_nodes:
                    raise _refusal("an alias refers to a value that contains it", child)
                if id(child) not in sizes:
                    stack.append(child)
            if stack[-1] is not node:
                continue
        stack.pop()
        open_nodes.discard(key)
        sizes[key] = 1 + sum(sizes[id(child)] for child in children)
        depths[key] = 1 + max((depths[id(child)] for child in children), default=0)
        if depths[key] > MAX_DEPTH:
            raise _refusal(f"nested deeper than {MAX_DEPTH} levels", node)
        if sizes[key] - len(sizes) > MAX_ALIASED_NODES:
            raise _refusal("document contains excessive aliasing", node)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _refusal(problem: str, node: yaml.Node) -> yaml.YAMLError:
    return yaml.composer.ComposerError(None, None, problem, node.start_mark)
