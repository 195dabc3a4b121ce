"""The examples in the reference page about fake nodes are files the program accepts."""

from __future__ import annotations

import re
from pathlib import Path

from kubesched.playground.kubelet.node_templates import load_node_pools

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "fake-nodes.md"


def test_every_example_loads():
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    kinds = []
    for block in blocks:
        kind = re.search(r"^kind: (\w+)$", block, re.MULTILINE)
        assert kind is not None
        assert load_node_pools(block.encode(), "fake-nodes.md")
        kinds.append(kind.group(1))
    assert kinds == ["NodePools", "NodePools"]
