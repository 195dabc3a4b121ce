"""Who a request is from, and what it may do.

access           authentication and authorization, as one object that the server asks
tokens           service account tokens: issued by `serviceaccounts/token`, verified on every request
rbac             roles and bindings, evaluated
escalation       nobody grants what they do not hold
bootstrap_roles  the roles and bindings every cluster with RBAC starts with
"""
