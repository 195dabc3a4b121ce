"""Actions on a playground: kubectl commands as the page shows them, objects, and new nodes.

The commands of fixes and of the page's forms run through its API, without a shell.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import yaml

from kubesched.base.errors import KubeschedError
from kubesched.base.visible import visible_lines
from kubesched.insight.planning.manifests import parse_manifests
from kubesched.playground.apimachinery.objects import copy_json
from kubesched.playground.client.local import LocalApi
from kubesched.playground.registry.patching.json_patch import apply_json_patch

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
        return _here_document(yaml.safe_dump(shown, sort_keys=False)) + more

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
        return _here_document(text)


def _is_count(value: int) -> bool:
    return not isinstance(value, bool) and 0 < value <= MAX_NEW_NODES


def _here_document(text: str) -> str:
    """A here-document whose delimiter is no line of the text, so the shell reads none of it."""
    lines, word = set(text.splitlines()), "EOF"
    while word in lines:
        word += "_"
    return f"kubectl create -f - <<'{word}'\n{visible_lines(text).rstrip()}\n{word}"


_REPLICAS = "--replicas="
_SERVER_FIELDS = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation")


class ActionError(KubeschedError):
    """An invalid action; the message gives the cause."""


def run_command(api: LocalApi, command: str) -> None:
    """Run a command as `explain` or the page writes it.

    Raises:
        ActionError: any other command.
        ApiError: the API server refuses.
    """
    try:
        verb, *words = shlex.split(command.removeprefix("kubectl "))
        namespace, patch = _option(words, "-n"), _option(words, "-p")
        names = [word for word in words if not word.startswith("-")]
        match verb, names:
            case (("cordon" | "uncordon"), [node]):
                is_cordon = verb == "cordon" or None
                api.patch("nodes", None, node, {"spec": {"unschedulable": is_cordon}})
            case "scale", [workload] if words[-1].startswith(_REPLICAS):
                kind, _, name = workload.partition("/")
                change = {"spec": {"replicas": int(words[-1].removeprefix(_REPLICAS))}}
                api.patch(_resource(api, kind), namespace, name, change)
            case "label", ["node", node, pair]:
                key, _, value = pair.partition("=")
                api.patch("nodes", None, node, {"metadata": {"labels": {key: value}}})
            case "taint", ["node", node, text]:
                _taint(api, node, text)
            case "delete", [kind, *rest] if rest:
                for name in rest:
                    api.delete(_resource(api, kind), namespace, name)
            case "patch", [kind, name] if patch:
                api.patch(_resource(api, kind), namespace, name, msgspec.json.decode(patch), "json")
            case "apply", ["<<<", manifest]:
                obj = msgspec.json.decode(manifest)
                api.create(_resource(api, obj["kind"]), obj, obj["metadata"]["namespace"])
            case "get", [kind, name, *_] if words[-4:] == ["replace", "--force", "-f", "-"]:
                _recreate(api, kind, namespace, name, msgspec.json.decode(patch or "[]"))
            case _:
                raise ActionError(f"{command}: no command of the page")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ActionError(f"{command}: {error}") from None


def _option(words: list[str], name: str) -> str:
    """Take the option's value out of the words."""
    if name not in words[:-1]:
        return ""
    at = words.index(name)
    value = words[at + 1]
    del words[at : at + 2]
    return value


def _taint(api: LocalApi, node: str, text: str) -> None:
    """Set the taint `key=value:effect`, or remove it if the text ends with a hyphen."""
    pair, _, effect = text.removesuffix("-").rpartition(":")
    key, _, value = pair.partition("=")
    taints = api.get("nodes", None, node)["spec"].get("taints") or ()
    kept = [taint for taint in taints if (taint["key"], taint["effect"]) != (key, effect)]
    if not text.endswith("-"):
        kept.append({"key": key, "effect": effect} | ({"value": value} if value else {}))
    api.patch("nodes", None, node, {"spec": {"taints": kept or None}})


def _resource(api: LocalApi, word: str) -> str:
    for info in api.catalog:
        if word.lower() in (info.kind.lower(), info.key.partition(".")[0], *info.short_names):
            return info.key
    raise ActionError(f"kind {word}: not known")


def _recreate(
    api: LocalApi, kind: str, namespace: str, name: str, patch: Sequence[dict[str, Any]]
) -> None:
    resource = _resource(api, kind)
    obj = apply_json_patch(copy_json(api.get(resource, namespace, name)), patch)
    for field in _SERVER_FIELDS:
        obj["metadata"].pop(field, None)
    obj.pop("status", None)
    api.delete(resource, namespace, name, grace_period_s=0, propagation="Background")
    api.create(resource, obj, namespace)
