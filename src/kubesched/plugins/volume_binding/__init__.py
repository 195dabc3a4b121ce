"""VolumeBinding: places a pod where its claims are, or can be, served, and binds those claims on the way.

plugin        the extension points
pod_claims    PreFilter: what state the pod's claims are in
storage       everything known about volumes, classes and capacities, with what is assumed
assume_cache  objects as they will be once pending writes have come back through the watch
search        Filter: for all nodes at once, which volumes would serve the claims, and what is in the way
scoring       Score (gated): how full the storage of a node would get
binding       Reserve and PreBind: what is assumed, written, and waited for
signals       wakes waiting bindings when something they wait for changes
"""

from kubesched.plugins.volume_binding.plugin import VolumeBinding

__all__ = ["VolumeBinding"]
