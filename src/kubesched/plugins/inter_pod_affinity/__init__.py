"""InterPodAffinity: near these pods, far from those, and mutually so."""

from kubesched.plugins.inter_pod_affinity.plugin import InterPodAffinity

__all__ = ["InterPodAffinity"]
