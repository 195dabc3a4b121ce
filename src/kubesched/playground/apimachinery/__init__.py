"""What the rest is built of, as with `k8s.io/apimachinery`: nothing here stores, serves or acts.

objects, pods     JSON objects and what they have in common
catalog, schema   which resources there are, and the fields of their types
serialization     bytes of a request as JSON values
bodies            objects of the right kind and shape, in the form that is stored
selectors         label and field selectors
object_meta       rules for `metadata`
validation        rules that kinds share
managed_fields    who set which field
failures          refusals in Kubernetes' words
"""
