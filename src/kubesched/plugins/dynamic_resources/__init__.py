"""DynamicResources: pods with claims go where the devices they ask for can be allocated.

plugin                   the extension points
state                    what one attempt knows about the pod's claims
claim_lookup             which claims a pod uses
claim_checks             PreFilter: checks that need no node
filtering                Filter: can a node serve them
signature_column         nodes that are alike, so that one is evaluated for all
binding                  PreBind and Unreserve: writes, waits and releases
binding_conditions       devices that must be prepared first
extended_resources       the special claim for extended resources
extended_resource_cache  which class backs an extended resource
device_totals            devices in the scores of NodeResourcesFit
hints                    which changes make a rejected pod worth another try
manager                  what all profiles share: claims, slices, classes, pools
claim_tracker            claims with what is assumed and in flight, and the devices they hold
slice_tracker            slices with the taints of DeviceTaintRules
structured               the allocator, which knows nothing of scheduling
"""

from kubesched.plugins.dynamic_resources.plugin import DynamicResources

__all__ = ["DynamicResources"]
