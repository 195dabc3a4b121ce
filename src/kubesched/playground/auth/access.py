"""Authentication and authorization of requests."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Literal, TypeAlias

from kubesched.base.clock import Clock
from kubesched.base.errors import Forbidden
from kubesched.playground.auth.bootstrap_roles import create_roles
from kubesched.playground.auth.rbac import Attributes, RbacAuthorizer
from kubesched.playground.auth.tokens import ServiceAccountTokens
from kubesched.playground.registry.rest_storage import RestStorage
from kubesched.playground.registry.users import ADMINISTRATOR, AUTHENTICATED, User

Authorization: TypeAlias = Literal["allow", "rbac"]

EVERYTHING_ALLOWED = "every authenticated user is an administrator here"
_ACCOUNT = "system:serviceaccount:"


class AccessControl:
    """Authenticates and authorizes; with `allow`, authenticated users may do everything."""

    def __init__(
        self, registry: RestStorage, clock: Clock, *, token: str, authorization: Authorization
    ) -> None:
        self._token = token.encode()
        # Derived from the administrator's token, so both survive the same restarts.
        key = hashlib.sha256(b"service account tokens\0" + self._token).digest()
        self.tokens = ServiceAccountTokens(registry, clock, key)
        self.rbac: RbacAuthorizer | None = None
        if authorization == "rbac":
            create_roles(registry)
            self.rbac = RbacAuthorizer(registry)

    def authenticate(self, token: str) -> User | None:
        """The user a bearer token belongs to."""
        if self._token and hmac.compare_digest(token.encode("utf-8", "replace"), self._token):
            return ADMINISTRATOR
        return self.tokens.verify(token)

    def reason(self, user: User, attributes: Attributes) -> str | None:
        """Why a request is allowed; None if it is not."""
        if self.rbac is None:
            return EVERYTHING_ALLOWED
        return self.rbac.allows(user, attributes)

    def require(self, user: User, attributes: Attributes) -> None:
        """Raise `Forbidden` unless the request is allowed."""
        if self.reason(user, attributes) is None:
            details = {"kind": attributes.resource}
            if attributes.group:
                details["group"] = attributes.group
            if attributes.name:
                details["name"] = attributes.name
            raise Forbidden(attributes.refusal(user.name), details=details)

    def effective_user(self, user: User, headers: Mapping[str, str]) -> User:
        """The caller, or the user it impersonates; `Forbidden` if it may not impersonate it."""
        name = headers.get("impersonate-user")
        if not name:
            return user
        namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
        if name.startswith(_ACCOUNT) and account:
            wanted = Attributes(
                verb="impersonate", resource="serviceaccounts", name=account, namespace=namespace
            )
            acting = User.service_account(namespace, account)
        else:
            wanted = Attributes(verb="impersonate", resource="users", name=name)
            acting = User(name)
        self.require(user, wanted)
        parts = headers.get("impersonate-group", "").split(",")
        groups = tuple([group for part in parts if (group := part.strip())])
        for group in groups:
            self.require(user, Attributes(verb="impersonate", resource="groups", name=group))
        groups = (*groups, AUTHENTICATED) if groups else acting.groups
        return User(acting.name, groups)
