"""DynamicResources: pods with claims go where the devices they ask for can be allocated.

plugin      the extension points
structured  the allocator
"""

from kubesched.plugins.dynamic_resources.plugin import DynamicResources

__all__ = ["DynamicResources"]
