"""Serves the extenders of a sequence on loopback, next to the control plane they bind pods on."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import msgspec

from kubesched.base.clock import SystemClock
from kubesched.base.errors import ApiError, NotFound
from kubesched.base.http_server.limits import Limits
from kubesched.base.http_server.listener import Listener, running
from kubesched.base.http_server.messages import Refusal, Request, Response
from kubesched.base.http_server.sockets import open_socket
from kubesched.client.rest import RestClient
from kubesched.lab.conformance.extenders import HOST, Cluster, question_in_words, reply, subject
from kubesched.lab.conformance.sequences import ExtenderPolicy, Json

MAX_QUESTION_BYTES = 64 * 1024 * 1024
LIMITS = Limits(
    handshakes_per_s=-1.0,  # plain HTTP: no handshakes
    max_body_bytes=MAX_QUESTION_BYTES,
    max_buffered_bytes=4 * MAX_QUESTION_BYTES,
)


class ExtenderServer:
    """Answers according to the policies, and keeps the questions."""

    def __init__(self, client: RestClient, policies: Sequence[ExtenderPolicy]) -> None:
        self._client = client
        self._policies = {policy.name: policy for policy in policies}
        self.key_of: Callable[[str], str] = str
        """Pod UID -> namespace and name."""
        self.url = ""
        self._asked: dict[str, set[str]] = {}

    def asked_about(self, pod: str) -> set[str]:
        return self._asked.get(pod, set())

    def configured(self, configuration: Json) -> Json:
        """The configuration with this server's address."""
        return msgspec.json.decode(
            msgspec.json.encode(configuration).replace(HOST.encode(), self.url.encode()), type=dict
        )

    def impersonal(self, text: str) -> str:
        """A message without this server's address."""
        return text.replace(self.url, HOST) if self.url else text

    def begin(self, request: Request) -> Response | None:
        """Accept POSTs to `/NAME/VERB`."""
        parts = request.path.split("/")
        if request.method != "POST" or len(parts) != 3 or parts[1] not in self._policies:
            return Response(404, b"404: Not Found")
        return None

    def refuse(self, refusal: Refusal) -> Response:
        return Response(refusal.status, refusal.message.encode())

    def finished(self, request: Request, status: int) -> None:
        """Requests are not logged."""

    async def respond(self, request: Request) -> Response:
        _, name, verb = request.path.split("/")
        return Response(*await self.answer(name, verb, request.body), "application/json")

    async def answer(self, name: str, verb: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to a question, which is kept."""
        policy, question = self._policies[name], msgspec.json.decode(body)
        pod = await self._find_pod(question) if verb == "bind" else None
        cluster = Cluster(find_pod=lambda _namespace, _name: pod, key_of=self.key_of)
        words = question_in_words(policy, verb, question, cluster)
        self._asked.setdefault(subject(verb, question), set()).add(words)
        answer = reply(policy, verb, question, cluster)
        told = await self._bind(question) if answer.binds else answer.body
        return answer.status, msgspec.json.encode(told)

    async def _find_pod(self, question: Json) -> Json | None:
        """The pod that a binding names.

        Read from the API server: a watch may lag behind the scheduler's, which would make the
        answer depend on timing.
        """
        path = f"/api/v1/namespaces/{question['PodNamespace']}/pods/{question['PodName']}"
        try:
            return msgspec.json.decode(await self._client.get_raw(path), type=dict)
        except NotFound:
            return None

    async def _bind(self, question: Json) -> Mapping[str, str]:
        namespace, name = question["PodNamespace"], question["PodName"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": question["PodUID"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": question["Node"]},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
        try:
            await self._client.post_raw(path, msgspec.json.encode(binding))
        except ApiError as error:
            return {"Error": str(error)}
        return {}


@contextlib.asynccontextmanager
async def extender_server(
    client: RestClient, policies: Sequence[ExtenderPolicy]
) -> AsyncIterator[ExtenderServer]:
    """Serve during the block, on a free port; serves nothing without policies."""
    made = ExtenderServer(client, policies)
    if not policies:
        yield made
        return
    sock = open_socket("127.0.0.1", 0)
    listener = Listener(sock, None, made, clock=SystemClock(), limits=LIMITS)
    made.url = f"http://127.0.0.1:{listener.port}"
    async with running(listener):
        yield made
