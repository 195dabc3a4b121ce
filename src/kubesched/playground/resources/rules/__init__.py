"""CEL rules of structural schemas (`x-kubernetes-validations`); see `apiserver/schema/cel`.

declarations   the CEL type of a schema, and the maximum size of its values
values         JSON as values of those types
field_paths    `fieldPath` of a rule
compilation    a rule and its message as programs, with their costs
definition     validation of the rules in a definition
evaluation     the rules that an object violates
"""
