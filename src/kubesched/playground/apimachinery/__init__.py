"""Building blocks like `k8s.io/apimachinery`: nothing here stores, serves or acts.

objects, pods     JSON objects and their common fields
catalog, schema   the served resources, and the fields of their types
serialization     decodes request bodies to JSON values
bodies            checks objects and converts them to their stored form
selectors         label and field selectors
object_meta       rules for `metadata`
validation        rules shared by kinds
managed_fields    ownership of fields
failures          errors with Kubernetes' messages
"""
