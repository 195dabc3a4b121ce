"""CEL rules of structural schemas (`x-kubernetes-validations`), as upstream's `apiserver/schema/cel`.

declarations   the CEL type of a schema, and how large its values can get
values         JSON as values of those types
field_paths    `fieldPath` of a rule
compilation    a rule and its message as programs, with their costs
definition     what is wrong with the rules of a definition
evaluation     the rules that an object breaks
"""
