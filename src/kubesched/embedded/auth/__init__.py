"""Who a request is from, and what it may do.

users            users and their groups
tokens           service account tokens: issued by `serviceaccounts/token`, verified on every request
rbac             roles and bindings, evaluated
bootstrap_roles  the roles and bindings every cluster with RBAC starts with
"""
