"""CPU time of the playground's API server for the costliest patches that it accepts.

    python benchmarks/costly_patches.py

Every request is as large as the bounds on bytes, values, operations and repeated items allow, so
the times are how long it may take until the next costly patch is computed; others are served.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator
from typing import Any

import yaml

from kubesched.base.clock import ManualClock
from kubesched.playground.apimachinery.serialization import MAX_BODY_BYTES, MAX_VALUES
from kubesched.playground.client.local import LocalApi
from kubesched.playground.handlers.exchange import ApiRequest
from kubesched.playground.registry.patching.json_patch import MAX_OPERATIONS
from kubesched.playground.registry.patching.strategic import MAX_REPEATS
from kubesched.playground.server.api_server import ApiServer

JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
ROOM = 1000
"""Values and bytes left for the rest of the object."""
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
MAPS = "/api/v1/namespaces/default/configmaps"


def container(env: list[Any], **more: Any) -> dict[str, Any]:
    return {"name": "c", "image": "i", "env": env, **more}


def deployment(*containers: dict[str, Any]) -> dict[str, Any]:
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": list(containers)}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}


def config_map(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, **fields}


def patches() -> Iterator[tuple[str, str, str, Any]]:
    """What it is, where it goes, its type and its body."""
    data = {f"k{n}": "v" for n in range(MAX_VALUES - ROOM)}
    named = [{"name": f"e{n}", "value": "v"} for n in range((MAX_VALUES - ROOM) // 3)]
    long_list = [0] * (MAX_VALUES - MAX_OPERATIONS - ROOM)
    keys = {f"k{n}": 0 for n in range(MAX_VALUES // 2)}
    again = [container([], name="c") for _ in range(MAX_REPEATS - 1)]
    yield "data of a ConfigMap", MAPS, MERGE, config_map(data=data)
    yield "data of a ConfigMap", MAPS, STRATEGIC, config_map(data=data)
    yield "data of a ConfigMap", MAPS, APPLY, config_map(data=data)
    yield "environment of a container", DEPLOYMENTS, STRATEGIC, deployment(container(named))
    yield "environment of a container", DEPLOYMENTS, APPLY, deployment(container(named))
    yield "environment, as YAML", DEPLOYMENTS, APPLY, [deployment(container(named))]
    yield (
        "one item merged repeatedly",
        DEPLOYMENTS,
        STRATEGIC,
        deployment(container([], **keys), *again),
    )
    first = {"op": "add", "path": "/x", "value": long_list}
    insert = {"op": "add", "path": "/x/0", "value": 0}
    yield "insertions into a list", MAPS, JSON, [first] + [insert] * (MAX_OPERATIONS - 1)
    text = {"op": "add", "path": "/data", "value": {"a": "x" * (1024 * 1024 - ROOM)}}
    yield "a long text", MAPS, JSON, [text]


def main() -> None:
    for what, path, kind, body in patches():
        api = LocalApi.in_memory(clock=ManualClock(), rng=random.Random(1))
        server = ApiServer(api.registry, clock=ManualClock(), rng=random.Random(1))
        create = deployment(container([])) if path == DEPLOYMENTS else config_map()
        times = []
        for method, target, media_type, sent in (
            ("POST", path, "application/json", create),
            ("PATCH", f"{path}/a", kind, body),
        ):
            written = json.dumps(sent, separators=(",", ":")).encode()
            if media_type == APPLY and isinstance(sent, list):
                written = yaml.safe_dump(sent[0]).encode()
            assert len(written) <= MAX_BODY_BYTES
            headers = {"content-type": media_type, "accept": "application/json"}
            began = time.process_time()
            request = ApiRequest(method, target, "fieldManager=m&force=true", headers, written)
            answer = asyncio.run(server.handle(request))
            times.append(time.process_time() - began)
        name = kind.partition("/")[2].removesuffix("+json").removesuffix("+yaml")
        print(f"{name:24} {what:28} {answer.status} {times[-1]:6.2f} s CPU", flush=True)


if __name__ == "__main__":
    main()
