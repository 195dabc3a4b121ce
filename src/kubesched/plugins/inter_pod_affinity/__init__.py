"""InterPodAffinity: places a pod near or away from other pods, by topology domain.

Filters on the pod's required (anti-)affinity and on the required anti-affinity of pods on nodes;
scores the preferred terms of both. Mirrors upstream's
`interpodaffinity/{plugin,filtering,scoring}.go`.
"""

from kubesched.plugins.inter_pod_affinity.plugin import InterPodAffinity

__all__ = ["InterPodAffinity"]
