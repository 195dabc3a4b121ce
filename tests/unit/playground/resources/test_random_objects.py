"""Random objects and patches of every kind: accepted or refused with a reason, never a fault of
ours.

Values have the right types, so that they get past decoding, and are otherwise as odd as they can
be. A seed that once found a fault is kept in the list.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from kubesched.base.clock import ManualClock
from kubesched.playground.apimachinery.catalog import BUILT_IN, ResourceInfo
from kubesched.playground.apimachinery.schema.table import TypeRef, type_of_kind, types
from kubesched.playground.client.local import LocalApi
from kubesched.playground.handlers.exchange import ApiRequest
from kubesched.playground.server.api_server import ApiServer

STORED = [each for each in BUILT_IN if each.is_stored]
ROUNDS = 300
TEXTS = [
    "",
    "a",
    "default",
    "Always",
    "Never",
    "In",
    "Exists",
    "x/y",
    "-bad-",
    "UPPER",
    "\u00fc",
    "a" * 300,
    "Equal",
]
SCALARS: dict[str, list[Any]] = {
    "string": TEXTS,
    "bytes": ["", "YQ=="],
    "int32": [0, 1, -1, 80, 2**31 - 1, -(2**31)],
    "int64": [0, 1, -1, 30, 2**62],
    "boolean": [True, False],
    "number": [0.0, -1.5],
    "any": [{}, {"a": 1}, 5, "x"],
    "Schema": [{}, {"type": "object"}, 5, "x"],
    "Quantity": ["0", "1", "-1", "500m", "1.0001", "1Gi", "lots", "", 3, 2.5],
    "Time": ["2026-01-01T00:00:00Z"],
    "MicroTime": ["2026-01-01T00:00:00.000001Z"],
    "IntOrString": [0, 1, -1, 99999, "25%", "x", "", "200%"],
}


class Maker:
    """Makes values of a type."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def value(self, ref: TypeRef, depth: int) -> Any:
        rng = self.rng
        if ref.shape == "list":
            return [self.value(ref.item, depth) for _ in range(rng.randrange(3))]
        if ref.shape == "map":
            return {rng.choice(TEXTS): self.value(ref.item, depth) for _ in range(rng.randrange(3))}
        if ref.shape == "scalar":
            return rng.choice(SCALARS[ref.name])
        if depth <= 0:
            return {}
        fields = types()[ref.name].fields
        names = [
            name
            for name in ("spec", "template", "containers")
            if name in fields and rng.random() < 0.9
        ]
        names += rng.sample(sorted(fields), min(len(fields), rng.randrange(7)))
        made = {name: self.value(fields[name].type, depth - 1) for name in names}
        if ref.name == "core.Container" and rng.random() < 0.7:
            made |= {"name": f"c{rng.randrange(3)}", "image": "i"}
        return made


class Client:
    """Sends and insists on an answer that is not our fault."""

    def __init__(self) -> None:
        api = LocalApi.in_memory(clock=ManualClock(), rng=random.Random(1))
        self.server = ApiServer(api.registry, clock=ManualClock(), rng=random.Random(1))

    async def send(
        self, method: str, target: str, body: object, content_type: str = "application/json"
    ) -> int:
        path, _, query = target.partition("?")
        headers = {"content-type": content_type, "accept": "application/json"}
        before = self.server.registry.store.revision
        response = await self.server.handle(
            ApiRequest(method, path, query, headers, json.dumps(body).encode())
        )
        answer = json.loads(response.body)
        assert response.status in (200, 201, 400, 403, 409, 422), (method, target, body, answer)
        if response.status >= 400:
            assert answer["message"]
            assert self.server.registry.store.revision == before, "nothing is half-written"
        return response.status


def path_of(resource: ResourceInfo) -> str:
    root = (
        f"/apis/{resource.group}/{resource.version}"
        if resource.group
        else f"/api/{resource.version}"
    )
    middle = "/namespaces/default" if resource.namespaced else ""
    return f"{root}{middle}/{resource.plural}"


async def one_life(client: Client, maker: Maker, resource: ResourceInfo, name: str) -> None:
    """Create an object, change it in every way there is, print it, delete it."""
    kind = type_of_kind(resource.group, resource.kind)
    assert kind is not None
    ref = TypeRef("object", kind.name)
    path = path_of(resource)
    obj = maker.value(ref, 7)
    hidden = ("namespace", "resourceVersion", "uid")
    metadata = obj.get("metadata") if maker.rng.random() < 0.3 else {}
    kept = {key: value for key, value in (metadata or {}).items() if key not in hidden}
    obj["metadata"] = {**kept, "name": name}
    if await client.send("POST", path, obj) != 201:
        return
    for patch_kind in ("merge", "strategic-merge"):
        patch = maker.value(ref, 6)
        patch.pop("metadata", None)
        for suffix in ("", "/status") if "status" in resource.subresources else ("",):
            await client.send(
                "PATCH", f"{path}/{name}{suffix}", patch, f"application/{patch_kind}-patch+json"
            )
    config = {
        **maker.value(ref, 6),
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {},
    }
    await client.send(
        "PATCH", f"{path}/{name}?fieldManager=f&force=true", config, "application/apply-patch+yaml"
    )
    await client.send("PUT", f"{path}/{name}", obj)
    headers = {"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    table = await client.server.handle(ApiRequest("GET", path, "", headers, b""))
    assert table.status == 200, table.body
    await client.send("DELETE", f"{path}/{name}", {})
    client.server.registry.store.check_invariants()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_any_object_is_accepted_or_refused_with_a_reason(seed):
    maker = Maker(seed)
    client = Client()
    for index in range(ROUNDS):
        await one_life(client, maker, STORED[index % len(STORED)], f"x{index}")


@pytest.mark.parametrize(
    "body",
    [{}, {"metadata": {}}, {"metadata": {"name": "x"}}, {"metadata": {"generateName": "x-"}}],
)
async def test_an_object_with_next_to_nothing_in_it_is_no_fault_of_ours(body):
    client = Client()
    for resource in STORED:
        await client.send("POST", path_of(resource), body)
