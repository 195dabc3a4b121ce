"""Authentication and authorization.

access           the entry point for the server
tokens           service account tokens, issued by `serviceaccounts/token`
rbac             evaluates roles and bindings
bootstrap_roles  default roles and bindings
"""
