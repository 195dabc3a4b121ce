"""Random objects and patches of every kind: accepted or refused with a reason, never a fault of ours.

Values have the right types, so that they get past decoding, and are otherwise as odd as they can be.
"""

from __future__ import annotations

import functools
import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubesched.clock import ManualClock
from kubesched.embedded.exchange import ApiRequest
from kubesched.embedded.local import LocalApi
from kubesched.embedded.memory_transport import CaseInsensitiveHeaders
from kubesched.embedded.resources import BUILT_IN, ResourceInfo
from kubesched.embedded.schema.table import TypeRef, type_of_kind, types
from kubesched.embedded.server import ApiServer

TEXTS = st.sampled_from(
    ["", "a", "default", "Always", "In", "Exists", "x/y", "-bad-", "UPPER", "ü", "a" * 300]
)
SCALARS = {
    "string": TEXTS,
    "bytes": st.sampled_from(["", "YQ=="]),
    "int32": st.integers(-(2**31), 2**31 - 1) | st.sampled_from([0, 1, -1, 80]),
    "int64": st.integers(-(2**40), 2**40) | st.sampled_from([0, 1, -1]),
    "boolean": st.booleans(),
    "number": st.floats(-5, 5),
    "any": st.sampled_from([{}, {"a": 1}, None, 5, "x"]),
    "Quantity": st.sampled_from(["0", "1", "-1", "500m", "1.0001", "1Gi", "lots", "", 3, 2.5]),
    "Time": st.sampled_from(["2026-01-01T00:00:00Z", None]),
    "MicroTime": st.sampled_from(["2026-01-01T00:00:00.000001Z", None]),
    "IntOrString": st.sampled_from([0, 1, -1, 99999, "25%", "x", "", "200%"]),
}


@functools.cache
def values(ref: TypeRef, depth: int) -> st.SearchStrategy:
    if ref.shape == "list":
        return st.lists(values(ref.item, depth), max_size=2)
    if ref.shape == "map":
        return st.dictionaries(TEXTS, values(ref.item, depth), max_size=2)
    if ref.shape == "object":
        if depth <= 0:
            return st.just({})
        fields = types()[ref.name].fields
        if not fields:
            return st.just({})
        always = [name for name in ("spec", "template", "containers", "status") if name in fields]

        def some(names: list[str]) -> st.SearchStrategy:
            chosen = dict.fromkeys([*always, *names])
            return st.fixed_dictionaries(
                {name: values(fields[name].type, depth - 1) for name in chosen}
            )

        # A handful of fields at a time: objects with everything in them are slow to make and refused at once.
        return st.lists(st.sampled_from(sorted(fields)), max_size=4, unique=True).flatmap(some)
    return SCALARS[ref.name]


def path_of(resource: ResourceInfo) -> str:
    root = (
        f"/apis/{resource.group}/{resource.version}"
        if resource.group
        else f"/api/{resource.version}"
    )
    middle = "/namespaces/default" if resource.namespaced else ""
    return f"{root}{middle}/{resource.plural}"


async def send(
    server: ApiServer, method: str, target: str, body: object, content_type: str
) -> tuple[int, dict]:
    path, _, query = target.partition("?")
    headers = CaseInsensitiveHeaders({"Content-Type": content_type, "Accept": "application/json"})
    response = await server.handle(
        ApiRequest(method, path, query, headers, json.dumps(body).encode())
    )
    return response.status, json.loads(response.body)


def fresh() -> ApiServer:
    api = LocalApi.in_memory(clock=ManualClock(), rng=random.Random(1))
    return ApiServer(api.registry, clock=ManualClock(), rng=random.Random(1))


STORED = [each for each in BUILT_IN if each.is_stored]


@pytest.mark.parametrize("resource", STORED, ids=[each.key for each in STORED])
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
async def test_any_object_is_accepted_or_refused_with_a_reason(resource, data):
    server = fresh()
    found = type_of_kind(resource.group, resource.kind)
    obj = data.draw(values(TypeRef("object", found.name), 6))
    obj["metadata"] = {"name": "x", **({"labels": {"a": "b"}} if data.draw(st.booleans()) else {})}
    before = server.registry.store.revision
    status, answer = await send(server, "POST", path_of(resource), obj, "application/json")
    assert status in (201, 400, 403, 422), answer
    if status != 201:
        assert answer["message"]
        assert server.registry.store.revision == before
        return
    patch = data.draw(values(TypeRef("object", found.name), 5))
    patch.pop("metadata", None)
    for kind in ("merge", "strategic-merge"):
        for suffix in ("", "/status" if "status" in resource.subresources else ""):
            target = f"{path_of(resource)}/x{suffix}"
            status, answer = await send(
                server, "PATCH", target, patch, f"application/{kind}-patch+json"
            )
            assert status in (200, 400, 403, 409, 422), answer
    status, answer = await send(
        server,
        "PATCH",
        f"{path_of(resource)}/x?fieldManager=f&force=true",
        {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": "x"},
            **patch,
        },
        "application/apply-patch+yaml",
    )
    assert status in (200, 400, 403, 409, 422), answer
    server.registry.store.check_invariants()


@pytest.mark.parametrize("resource", STORED, ids=[each.key for each in STORED])
@pytest.mark.parametrize(
    "body",
    [{}, {"metadata": {}}, {"metadata": {"name": "x"}}, {"metadata": {"generateName": "x-"}}],
)
async def test_an_object_with_next_to_nothing_in_it_is_no_fault_of_ours(resource, body):
    status, answer = await send(fresh(), "POST", path_of(resource), body, "application/json")
    assert status in (201, 400, 422), answer
