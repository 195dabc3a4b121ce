"""The test kit for plugin authors: builders, a cluster in memory, ready-made frameworks."""

from kubesched.insight.state.cluster import Cluster
from kubesched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod

__all__ = ["Cluster", "NodeBuilder", "PodBuilder", "make_node", "make_pod"]
