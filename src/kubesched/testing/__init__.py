"""The test kit for plugin authors: builders for pods and nodes, clocks that stand still, ready-made frameworks."""

from kubesched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
from kubesched.testing.harness import SchedulerHarness

__all__ = ["NodeBuilder", "PodBuilder", "SchedulerHarness", "make_node", "make_pod"]
