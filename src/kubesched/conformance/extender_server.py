"""A server for the extenders of a sequence, on loopback, beside the control plane that it binds pods on."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec
from aiohttp import web

from kubesched.client.rest import RestClient
from kubesched.conformance.extenders import HOST, Cluster, question_in_words, reply, subject
from kubesched.conformance.sequences import ExtenderPolicy, Json
from kubesched.errors import ApiError

CASE_PORT = 9998
"""Where the extenders of a written case are served, by `kubesched conformance extender`."""

MAX_QUESTION_BYTES = 64 * 1024 * 1024


class ExtenderServer:
    """Answers as the policies say, and keeps what was asked."""

    def __init__(self, client: RestClient, policies: Sequence[ExtenderPolicy]) -> None:
        self._client = client
        self._policies = {policy.name: policy for policy in policies}
        self.cluster: Cluster | None = None
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

    async def handle(self, request: web.Request) -> web.Response:
        policy = self._policies[request.match_info["name"]]
        verb, question = request.match_info["verb"], msgspec.json.decode(await request.read())
        assert self.cluster is not None, "somebody is playing"
        about = subject(verb, question)
        words = question_in_words(policy, verb, question, self.cluster)
        self._asked.setdefault(about, set()).add(words)
        answer = reply(policy, verb, question, self.cluster)
        body = answer.body
        if answer.binds:
            body = await self._bind(question)
        return web.Response(
            body=msgspec.json.encode(body), status=answer.status, content_type="application/json"
        )

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
    client: RestClient, policies: Sequence[ExtenderPolicy], port: int = 0
) -> AsyncIterator[ExtenderServer]:
    """Serves as long as the block lasts, on any free port if none is given; without policies there is nothing to serve."""
    made = ExtenderServer(client, policies)
    if not policies:
        yield made
        return
    app = web.Application(client_max_size=MAX_QUESTION_BYTES)
    app.router.add_post("/{name}/{verb}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=1.0, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield made
    finally:
        await runner.cleanup()
