"""The extenders of a sequence, in memory and without a network."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kubesched.api.core_v1 import Pod
from kubesched.api.names import key_of
from kubesched.base.errors import ApiError
from kubesched.client.exchange import BufferedResponse
from kubesched.client.transport import Request, Response
from kubesched.insight.state.cluster import Cluster as MemoryCluster
from kubesched.lab.conformance.extenders import Cluster, question_in_words, reply, subject
from kubesched.lab.conformance.sequences import ExtenderPolicy, Json

_JSON = [(b"content-type", b"application/json")]


class ReplayedExtenders:
    """Transport to all extenders."""

    def __init__(self, policies: Sequence[ExtenderPolicy]) -> None:
        self._policies = {policy.name: policy for policy in policies}
        self.world: MemoryCluster | None = None
        self._asked: dict[str, set[str]] = {}
        self._keys: dict[str, str] = {}

    def asked_about(self, pod: str) -> set[str]:
        return self._asked.get(pod, set())

    async def request(self, request: Request) -> Response:
        name, verb = request.target.strip("/").split("/")
        policy, question = self._policies[name], msgspec.json.decode(request.body)
        cluster = Cluster(find_pod=self._find, key_of=self._key_of)
        words = question_in_words(policy, verb, question, cluster)
        self._asked.setdefault(subject(verb, question), set()).add(words)
        answer = reply(policy, verb, question, cluster)
        body = await self._bind(question) if answer.binds else answer.body
        return BufferedResponse(answer.status, _JSON, msgspec.json.encode(body))

    async def aclose(self) -> None:
        """No-op."""

    def _find(self, namespace: str, name: str) -> Json | None:
        pod = self._pod(namespace, name)
        return None if pod is None else msgspec.to_builtins(pod)

    def _pod(self, namespace: str, name: str) -> Pod | None:
        assert self.world is not None, "a sequence is being played"
        pod: Pod | None = self.world.listers.of(Pod).get(namespace, name)
        return pod

    def _key_of(self, uid: str) -> str:
        assert self.world is not None, "a sequence is being played"
        for pod in self.world.listers.of(Pod).list():
            self._keys[pod.metadata.uid] = key_of(pod.metadata)
        return self._keys.get(uid, uid)

    async def _bind(self, question: Json) -> Json:
        assert self.world is not None, "a sequence is being played"
        pod = self._pod(question["PodNamespace"], question["PodName"])
        if pod is None or pod.metadata.uid != question["PodUID"]:
            return {"Error": f"pods {question['PodName']!r} not found"}
        try:
            await self.world.client.bind_pod(pod, question["Node"])
        except ApiError as error:
            return {"Error": str(error)}
        return {}
