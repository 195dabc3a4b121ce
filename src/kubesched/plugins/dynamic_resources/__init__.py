"""DynamicResources: places pods with claims where the requested devices can be allocated.

plugin                   the extension points
state                    per-attempt state of the pod's claims
claim_lookup             which claims a pod uses
filtering                Filter: whether a node can serve the claims
signature_column         groups equivalent nodes, so that one is evaluated for all
binding                  PreBind and Unreserve: writes, waits and releases
binding_conditions       devices that must be prepared before binding
extended_resources       the special claim for extended resources
extended_resource_cache  which class backs an extended resource
device_totals            devices in the scores of NodeResourcesFit
hints                    queueing hints
manager                  shared by all profiles: claims, slices, classes, pools
claim_tracker            claims, including assumed and in-flight ones, and their devices
slice_tracker            slices with the taints of DeviceTaintRules
structured               the allocator, independent of scheduling
"""

from kubesched.plugins.dynamic_resources.plugin import DynamicResources

__all__ = ["DynamicResources"]
