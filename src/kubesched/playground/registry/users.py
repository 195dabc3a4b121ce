"""Authenticated users."""

from __future__ import annotations

from dataclasses import dataclass

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user."""

    name: str
    groups: tuple[str, ...] = (AUTHENTICATED,)
    uid: str = ""

    @classmethod
    def of_certificate(cls, name: str, organizations: tuple[str, ...]) -> User:
        """The user of a client certificate: common name and, as groups, organizations."""
        return cls(name, (*organizations, AUTHENTICATED))

    @classmethod
    def service_account(cls, namespace: str, name: str, uid: str = "") -> User:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
        return cls(f"system:serviceaccount:{namespace}:{name}", groups, uid)


ADMINISTRATOR = User("kubernetes-admin", (MASTERS, AUTHENTICATED))
