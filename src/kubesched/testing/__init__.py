"""The test kit for plugin authors: builders for pods and nodes, clocks that stand still, ready-made frameworks."""

from kubesched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod

__all__ = ["NodeBuilder", "PodBuilder", "make_node", "make_pod"]
