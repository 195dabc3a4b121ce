"""NodeResourceTopologyMatch: pods whose resources have to come from one NUMA zone of a node.

NodeResourceTopology objects say what the zones of a node have left (`topology`). Filter and scores
do what the kubelet's topology manager would (`alignment`, `scoring`); `cache` decides how far the
objects are to be believed while pods are on their way to a node.
"""

from kubesched_plugins.node_resource_topology.plugin import NodeResourceTopologyMatch

__all__ = ["NodeResourceTopologyMatch"]
