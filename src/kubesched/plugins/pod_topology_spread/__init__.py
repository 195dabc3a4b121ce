"""PodTopologySpread: spreads the pods of a workload over zones, hosts or other topology domains.

Filters on DoNotSchedule constraints, scores ScheduleAnyway ones. Mirrors upstream's
`podtopologyspread/{plugin,common,filtering,scoring}.go`.
"""

from kubesched.plugins.pod_topology_spread.plugin import PodTopologySpread

__all__ = ["PodTopologySpread"]
