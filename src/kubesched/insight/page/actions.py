"""Actions on a playground, each with its equivalent kubectl command."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

import yaml

from kubesched.base.errors import KubeschedError
from kubesched.base.visible import visible_lines
from kubesched.insight.planning.manifests import parse_manifests
from kubesched.playground.client.local import LocalApi

MAX_REPLICAS: Final = 10_000
MAX_NEW_NODES: Final = 1000
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")

Json = dict[str, Any]


class ActionError(KubeschedError):
    """An invalid action; the message gives the cause."""


class Actions(Protocol):
    """Changes a cluster on request."""

    def do(self, request: Json, *, preview: bool) -> Json:
        """Execute an action, or with `preview` only describe it; raises ActionError or ApiError."""
        ...

    def workloads(self) -> list[Json]:
        """Scalable workloads: namespace, name, replicas."""
        ...


AddNodes = Callable[[int], list[Json]]
"""Creates that many Node objects with free names."""


class PlaygroundActions:
    """Actions through the embedded cluster's own API."""

    def __init__(self, api: LocalApi, new_nodes: AddNodes) -> None:
        self._api = api.as_manager("kubesched-page")
        self._new_nodes = new_nodes
        self._actions: dict[str, Callable[[Json, bool], str]] = {
            "scale": self._scale,
            "cordon": partial(self._set_unschedulable, True),
            "uncordon": partial(self._set_unschedulable, False),
            "taint": self._taint,
            "untaint": self._untaint,
            "add-nodes": self._add_nodes,
            "apply": self._apply,
            "delete-pod": self._delete_pod,
        }

    def do(self, request: Json, *, preview: bool) -> Json:
        name = request.get("action")
        action = self._actions.get(name) if isinstance(name, str) else None
        if action is None:
            raise ActionError(f"action: {name!r} is none of {', '.join(self._actions)}")
        return {"command": action(request, preview), "done": not preview}

    def workloads(self) -> list[Json]:
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

    def _scale(self, request: Json, preview: bool) -> str:
        namespace, name = _text(request, "namespace"), _text(request, "name")
        replicas = _number(request, "replicas", 0, MAX_REPLICAS)
        if not preview:
            change = {"spec": {"replicas": replicas}}
            self._api.patch("deployments.apps", namespace, name, change)
        return _command(
            "scale", f"deployment/{name}", "--namespace", namespace, f"--replicas={replicas}"
        )

    def _set_unschedulable(self, value: bool, request: Json, preview: bool) -> str:
        node = _text(request, "node")
        if not preview:
            self._api.patch("nodes", None, node, {"spec": {"unschedulable": value or None}})
        return _command("cordon" if value else "uncordon", node)

    def _taint(self, request: Json, preview: bool) -> str:
        node, key, value, effect = self._taint_of(request)
        if not preview:
            taint = {"key": key, "effect": effect} | ({"value": value} if value else {})
            taints = [*self._taints_beside(node, key, effect), taint]
            self._api.patch("nodes", None, node, {"spec": {"taints": taints}})
        return _command("taint", "nodes", node, f"{key}={value}:{effect}", "--overwrite")

    def _untaint(self, request: Json, preview: bool) -> str:
        node, key, _value, effect = self._taint_of(request)
        if not preview:
            kept = self._taints_beside(node, key, effect)
            self._api.patch("nodes", None, node, {"spec": {"taints": kept or None}})
        return _command("taint", "nodes", node, f"{key}:{effect}-")

    def _taint_of(self, request: Json) -> tuple[str, str, str, str]:
        effect = _text(request, "effect")
        if effect not in EFFECTS:
            raise ActionError(f"effect: {effect!r} is none of {', '.join(EFFECTS)}")
        return _text(request, "node"), _text(request, "key"), str(request.get("value", "")), effect

    def _taints_beside(self, node: str, key: str, effect: str) -> list[Json]:
        taints = self._api.get("nodes", None, node)["spec"].get("taints") or ()
        return [taint for taint in taints if (taint["key"], taint["effect"]) != (key, effect)]

    def _add_nodes(self, request: Json, preview: bool) -> str:
        count = _number(request, "count", 1, MAX_NEW_NODES)
        nodes = self._new_nodes(count)
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

    def _apply(self, request: Json, preview: bool) -> str:
        text = _text(request, "yaml")
        manifests = parse_manifests("YAML", text.encode())
        if not preview:
            catalog = self._api.registry.catalog
            for manifest in manifests:
                info = catalog.find_kind(manifest.obj["apiVersion"], manifest.kind)
                if info is None:
                    raise ActionError(f"{manifest}: the kind is not known")
                namespace = (manifest.obj.get("metadata") or {}).get("namespace") or "default"
                self._api.create(info, manifest.obj, namespace if info.namespaced else None)
        return _here_document("create", text)

    def _delete_pod(self, request: Json, preview: bool) -> str:
        namespace, name = _text(request, "namespace"), _text(request, "name")
        if not preview:
            self._api.delete("pods", namespace, name)
        return _command("delete", "pod", name, "--namespace", namespace)


def _command(*words: str) -> str:
    return shlex.join(["kubectl", *words])


def _here_document(verb: str, text: str) -> str:
    """A here-document whose delimiter is no line of the text, so the shell reads none of it."""
    lines, word = set(text.splitlines()), "EOF"
    while word in lines:
        word += "_"
    return f"kubectl {verb} -f - <<'{word}'\n{visible_lines(text).rstrip()}\n{word}"


def _text(request: Json, field: str) -> str:
    value = request.get(field)
    if not isinstance(value, str) or not value:
        raise ActionError(f"{field}: expected a text")
    return value


def _number(request: Json, field: str, low: int, high: int) -> int:
    value = request.get(field)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ActionError(f"{field}: expected a whole number from {low} to {high}")
    return value
