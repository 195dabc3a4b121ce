"""VolumeBinding: rejects nodes that cannot satisfy a pod's claims, and binds the claims.

Mirrors upstream's `volumebinding/{volume_binding,binder,assume_cache,scorer}.go`.

plugin        the extension points
pod_claims    PreFilter: the state of the pod's claims
storage       volumes, classes and capacities, including assumed ones
assume_cache  objects with pending writes applied
search        Filter: per node, the volumes for the claims, or why there are none
scoring       Score (gated): storage utilization of a node
binding       Reserve and PreBind: assume, write, wait
signals       wakes waiting bindings on changes
"""

from kubesched.plugins.volume_binding.plugin import VolumeBinding

__all__ = ["VolumeBinding"]
