"""Actions on a playground: kubectl commands as the page shows them, objects, and new nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import yaml

from kubesched.base.visible import visible_lines
from kubesched.insight.page.kubectl import ActionError, run_command
from kubesched.insight.planning.manifests import parse_manifests
from kubesched.playground.client.local import LocalApi

MAX_NEW_NODES: Final = 1000
MAX_COMMANDS: Final = 100

Json = dict[str, Any]
AddNodes = Callable[[int, str], list[Json]]
"""Creates that many Node objects with free names, like the named node or the first of all."""


class PlaygroundActions:
    """Actions through the embedded cluster's own API."""

    def __init__(self, api: LocalApi, new_nodes: AddNodes) -> None:
        self._api = api.as_manager("kubesched-page")
        self._new_nodes = new_nodes

    def do(self, request: Json, *, preview: bool) -> Json:
        """Execute an action, or with `preview` only describe it; raises ActionError or ApiError."""
        match request:
            case {"action": "run", "commands": [*commands]} if len(commands) <= MAX_COMMANDS:
                command = self._run(commands, preview)
            case {"action": "add-nodes", "count": int(count)} if _is_count(count):
                command = self._add_nodes(count, str(request.get("like") or ""), preview)
            case {"action": "apply", "yaml": str(text)}:
                command = self._apply(text, preview)
            case _:
                raise ActionError(
                    f"action: expected run with up to {MAX_COMMANDS} commands, "
                    f"add-nodes with a count from 1 to {MAX_NEW_NODES}, or apply with yaml"
                )
        return {"command": command, "done": not preview}

    def workloads(self) -> list[Json]:
        """Scalable workloads: namespace, name, replicas."""
        deployments, _ = self._api.list("deployments.apps")
        return [
            {
                "namespace": deployment["metadata"]["namespace"],
                "name": deployment["metadata"]["name"],
                "replicas": deployment["spec"].get("replicas", 1),
                "ready": deployment.get("status", {}).get("readyReplicas", 0),
            }
            for deployment in deployments
        ]

    def _run(self, commands: list[Any], preview: bool) -> str:
        for command in () if preview else commands:
            run_command(self._api, str(command))
        return "\n".join(map(str, commands))

    def _add_nodes(self, count: int, like: str, preview: bool) -> str:
        nodes = self._new_nodes(count, like)
        if not preview:
            for node in nodes:
                self._api.create("nodes", node)
        shown = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": nodes[0]["metadata"]["name"],
                "labels": nodes[0]["metadata"].get("labels", {}),
            },
            "status": {"capacity": nodes[0].get("status", {}).get("capacity", {})},
        }
        more = f"\n# and {count - 1} more" if count > 1 else ""
        return _here_document("create", yaml.safe_dump(shown, sort_keys=False)) + more

    def _apply(self, text: str, preview: bool) -> str:
        manifests = parse_manifests("YAML", text.encode())
        if not preview:
            catalog = self._api.registry.catalog
            for manifest in manifests:
                manifest.check_fields()
                info = catalog.find_kind(manifest.obj["apiVersion"], manifest.kind)
                if info is None:
                    raise ActionError(f"{manifest}: the kind is not known")
                namespace = manifest.namespace or "default"
                self._api.create(info, manifest.obj, namespace if info.namespaced else None)
        return _here_document("create", text)


def _is_count(value: int) -> bool:
    return not isinstance(value, bool) and 0 < value <= MAX_NEW_NODES


def _here_document(verb: str, text: str) -> str:
    """A here-document whose delimiter is no line of the text, so the shell reads none of it."""
    lines, word = set(text.splitlines()), "EOF"
    while word in lines:
        word += "_"
    return f"kubectl {verb} -f - <<'{word}'\n{visible_lines(text).rstrip()}\n{word}"
