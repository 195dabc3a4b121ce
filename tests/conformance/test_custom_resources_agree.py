"""Custom resources are refused and stored as by kube-apiserver 1.36: nulls, defaults, ratcheting.

`data/custom_resources.json` holds kube-apiserver's answers to the cases; with `$KUBEBUILDER_ASSETS`
they are asked for again, and `KUBESCHED_RECORD=1` writes them down.
"""

import asyncio
import json
import os
import random
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from custom_resource_cases import CASES, play

from kubesched.base.clock import ManualClock
from kubesched.playground.client.local import LocalApi
from kubesched.playground.handlers.exchange import ApiRequest
from kubesched.playground.server.api_server import ApiServer
from kubesched.testing.control_plane import ASSETS_VARIABLE, control_plane, find_assets

RECORDED = Path(__file__).parent / "data" / "custom_resources.json"
HEADERS = {"accept": "application/json", "user-agent": "tests/1.0"}
TYPES = {"POST": "application/json", "PATCH": "application/merge-patch+json", "GET": ""}


@pytest.fixture(scope="module")
def recorded():
    return json.loads(RECORDED.read_text())


@pytest.mark.parametrize("index", range(len(CASES)), ids=[case.name for case in CASES])
async def test_the_embedded_server_answers_alike(index, recorded):
    case, clock, rng = CASES[index], ManualClock(), random.Random(7)
    server = ApiServer(LocalApi.in_memory(clock=clock, rng=rng).registry, clock=clock, rng=rng)

    async def call(method, target, body):
        path, _, query = target.partition("?")
        headers = {**HEADERS, "content-type": TYPES[method]}
        data = json.dumps(body).encode() if body is not None else b""
        answer = await server.handle(ApiRequest(method, path, query, headers, data))
        return answer.status, json.loads(answer.body)

    assert await play(index, case, call) == recorded[case.name]


@pytest.mark.real
@pytest.mark.timeout(300)
async def test_kube_apiserver_answers_as_recorded(tmp_path):
    if not os.environ.get(ASSETS_VARIABLE):
        pytest.skip(f"needs etcd and kube-apiserver in ${ASSETS_VARIABLE}")
    async with control_plane(find_assets(), tmp_path) as plane:
        call = caller(plane)
        answers = {case.name: await play(index, case, call) for index, case in enumerate(CASES)}
    if os.environ.get("KUBESCHED_RECORD"):
        RECORDED.write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n")
    assert answers == json.loads(RECORDED.read_text())


def caller(plane):
    """Requests to a real API server, as its administrator."""
    context = ssl.create_default_context(cafile=plane.folder / "ca.crt")
    context.load_cert_chain(plane.folder / "admin.crt", plane.folder / "admin.key")

    def request(method, target, body):
        data = json.dumps(body).encode() if body is not None else None
        headers = {**HEADERS, "content-type": TYPES[method]}
        asked = urllib.request.Request(plane.url + target, data, headers, method=method)
        try:
            with urllib.request.urlopen(asked, context=context, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            with refusal:
                text = refusal.read().decode()
            return refusal.code, json.loads(text) if text.startswith("{") else {"message": text}

    return lambda *arguments: asyncio.to_thread(request, *arguments)
