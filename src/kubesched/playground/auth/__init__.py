"""Authentication and authorization.

access           the entry point for the server
tokens           service account tokens, issued by `serviceaccounts/token`
rbac             evaluates roles and bindings
escalation       prevents users from granting permissions that they do not hold
bootstrap_roles  default roles and bindings
"""
