"""Runs the kubectl commands of fixes and of the page's forms on a playground, without a shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import msgspec

from kubesched.base.errors import KubeschedError
from kubesched.playground.apimachinery.objects import copy_json
from kubesched.playground.client.local import LocalApi
from kubesched.playground.registry.patching.json_patch import apply_json_patch

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
    except (ValueError, KeyError, TypeError) as error:
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
