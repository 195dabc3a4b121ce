"""Service account tokens: JSON web tokens signed with a cluster key.

A token is valid until it expires, while its account exists under the same uid.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from kubesched.base.clock import Clock
from kubesched.playground.apimachinery.objects import JsonObject, decode, encode
from kubesched.playground.registry.rest_storage import RestStorage
from kubesched.playground.registry.users import User

ISSUER = "https://kubernetes.default.svc.cluster.local"
SHORTEST_S = 600
LONGEST_S = 1 << 32
DEFAULT_S = 3600


class ServiceAccountTokens:
    """Issues and verifies tokens."""

    def __init__(self, registry: RestStorage, clock: Clock, key: bytes) -> None:
        self._registry = registry
        self._clock = clock
        self._key = key

    def issue(self, account: JsonObject, audiences: list[str], seconds: int) -> tuple[str, float]:
        """A token for the account, and its expiry time."""
        metadata = account["metadata"]
        now = int(self._clock.now())
        claims = {
            "iss": ISSUER,
            "sub": f"system:serviceaccount:{metadata['namespace']}:{metadata['name']}",
            "aud": audiences or [ISSUER],
            "iat": now,
            "nbf": now,
            "exp": now + seconds,
            "kubernetes.io": {
                "namespace": metadata["namespace"],
                "serviceaccount": {"name": metadata["name"], "uid": metadata["uid"]},
            },
        }
        signed = f"{_packed({'alg': 'HS256', 'typ': 'JWT'})}.{_packed(claims)}"
        return f"{signed}.{self._signature(signed)}", now + seconds

    def verify(self, token: str) -> User | None:
        """The service account of a token; None if it is invalid, expired or the account is gone."""
        signed, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(signed).encode()):
            return None
        claims = _unpacked(signed.partition(".")[2])
        if claims is None or claims["exp"] <= self._clock.now() or ISSUER not in claims["aud"]:
            return None
        bound = claims["kubernetes.io"]
        namespace, account = bound["namespace"], bound["serviceaccount"]
        entry = self._registry.store.get("serviceaccounts", namespace, account["name"])
        if entry is None or entry.obj["metadata"]["uid"] != account["uid"]:
            return None
        return User.service_account(namespace, account["name"], account["uid"])

    def _signature(self, signed: str) -> str:
        return _text(hmac.new(self._key, signed.encode(), hashlib.sha256).digest())


def _packed(value: JsonObject) -> str:
    return _text(encode(value))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unpacked(text: str) -> JsonObject | None:
    try:
        claims: JsonObject = decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError):
        return None
    return claims
