"""VolumeBinding: rejects nodes where a pod's claims cannot be satisfied, and binds the claims on the chosen node.

Mirrors upstream's `volumebinding/{volume_binding,binder,assume_cache,scorer}.go`.

plugin        the extension points
pod_claims    PreFilter: the state of the pod's claims
storage       volumes, classes and capacities, including assumed ones
assume_cache  objects with pending writes applied
search        Filter: per node, the volumes for the claims, or why there are none
scoring       Score (gated): how full the storage of a node would get
binding       Reserve and PreBind: assume, write, wait
signals       wakes waiting bindings on changes
"""

from kubesched.plugins.volume_binding.plugin import VolumeBinding

__all__ = ["VolumeBinding"]
