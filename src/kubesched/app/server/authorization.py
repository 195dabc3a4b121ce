"""Authorization: by group and path first, then by the API server (SubjectAccessReview)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from kubesched.app.server.review_cache import ReviewCache
from kubesched.app.server.users import MASTERS, User
from kubesched.base.clock import Clock
from kubesched.base.errors import KubeschedError, TransportError
from kubesched.client.rest import RestClient

REVIEW_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Decision:
    """Allowed or not, with the API server's reason if it gave one."""

    allowed: bool
    reason: str = ""


class ReviewFailed(KubeschedError):
    """The API server could not be asked, or its response is malformed."""


class _Status(msgspec.Struct):
    allowed: bool = False
    denied: bool = False
    reason: str = ""


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


class Authorizer:
    """Decides by group, path, or a review; without a review client, allows only open paths."""

    def __init__(
        self,
        client: RestClient | None,
        *,
        always_allow_paths: Sequence[str] = (),
        allowed_ttl_s: float = 10.0,
        denied_ttl_s: float = 10.0,
        clock: Clock,
    ) -> None:
        self._client = client
        self._exact = frozenset(
            _normal(path) for path in always_allow_paths if not path.endswith("*")
        )
        self._prefixes = tuple(
            _normal(path).removesuffix("*") for path in always_allow_paths if path.endswith("*")
        )
        self._cache: ReviewCache[Decision] = ReviewCache(
            lambda decision: allowed_ttl_s if decision.allowed else denied_ttl_s, clock=clock
        )

    async def decide(self, user: User, verb: str, path: str) -> Decision:
        """Whether the user may do this.

        Raises:
            ReviewFailed: the API server gave no usable response.
        """
        if self.is_open(path):
            return Decision(True)
        attributes = {"nonResourceAttributes": {"path": path, "verb": verb}}
        return await self._decide(user, (verb, path), attributes)

    async def may_list_pods(self, user: User, namespace: str) -> Decision:
        """Whether the user may list the pods of a namespace; if it is empty, of all namespaces.

        Raises:
            ReviewFailed: as above.
        """
        wanted = {"verb": "list", "version": "v1", "resource": "pods"}
        if namespace:
            wanted["namespace"] = namespace
        return await self._decide(user, ("pods", namespace), {"resourceAttributes": wanted})

    async def _decide(
        self, user: User, what: tuple[str, str], attributes: Mapping[str, object]
    ) -> Decision:
        if MASTERS in user.groups:
            return Decision(True)
        if self._client is None:
            return Decision(False)
        try:
            subject = (user.cache_key(), *what, *attributes)
            return await self._cache.get(subject, lambda: self._ask(user, attributes))
        except KubeschedError as error:
            raise ReviewFailed(str(error)) from error

    def is_open(self, path: str) -> bool:
        """Whether the path is open to all; matches exactly: `/healthz` excludes `/healthz/ping`."""
        plain = _normal(path)
        return plain in self._exact or (bool(self._prefixes) and plain.startswith(self._prefixes))

    async def _ask(self, user: User, attributes: Mapping[str, object]) -> Decision:
        assert self._client is not None, "reviews need a client"
        spec = {
            "user": user.name,
            "groups": list(user.groups),
            "uid": user.uid,
            "extra": {key: list(values) for key, values in user.extra.items()},
            **attributes,
        }
        question = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {key: value for key, value in spec.items() if value},
        }
        answer = await self._client.post_raw(REVIEW_PATH, json.dumps(question).encode())
        try:
            status = msgspec.json.decode(answer, type=_Review).status
        except msgspec.DecodeError as error:
            raise TransportError(f"the answer to a review cannot be understood: {error}") from error
        return Decision(status.allowed and not status.denied, status.reason)


def _normal(path: str) -> str:
    # Upstream: one leading slash may be missing; everything else must match to the letter.
    return path.removeprefix("/")
