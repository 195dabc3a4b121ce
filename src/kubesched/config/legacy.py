"""Hints in errors: when a version was removed, and which plugin replaces a removed one."""

from __future__ import annotations

from difflib import get_close_matches

from kubesched.api.yaml_nodes import Mapping, Node
from kubesched.base.errors import FieldProblem
from kubesched.config.default_plugins import IN_TREE_PLUGINS
from kubesched.config.plugin_args import ARGS_BY_PLUGIN
from kubesched.config.types import API_VERSION, GROUP, KIND

_REMOVED_IN = {
    "componentconfig/v1alpha1": "1.12",
    f"{GROUP}/v1alpha1": "1.18",
    f"{GROUP}/v1alpha2": "1.19",
    f"{GROUP}/v1beta1": "1.23",
    f"{GROUP}/v1beta2": "1.28",
    f"{GROUP}/v1beta3": "1.29",
}

_FIT = "NodeResourcesFit"
_RENAMED_PLUGINS = {
    "AzureDiskLimits": ("1.32", "NodeVolumeLimits, which counts CSI volumes"),
    "CinderLimits": ("1.32", "NodeVolumeLimits, which counts CSI volumes"),
    "EBSLimits": ("1.32", "NodeVolumeLimits, which counts CSI volumes"),
    "GCEPDLimits": ("1.32", "NodeVolumeLimits, which counts CSI volumes"),
    "SelectorSpread": ("1.29", "PodTopologySpread with its System default constraints"),
    "DefaultPodTopologySpread": ("1.19", "PodTopologySpread with its System default constraints"),
    "NodeResourcesLeastAllocated": ("1.23", f"{_FIT} with scoringStrategy type LeastAllocated"),
    "NodeResourcesMostAllocated": ("1.23", f"{_FIT} with scoringStrategy type MostAllocated"),
    "RequestedToCapacityRatio": (
        "1.23",
        f"{_FIT} with scoringStrategy type RequestedToCapacityRatio",
    ),
    "NodeLabel": ("1.23", "NodeAffinity with addedAffinity"),
    "ServiceAffinity": ("1.23", "InterPodAffinity, or topology spread constraints in the pods"),
    "NodePreferAvoidPods": ("1.23", "taints with effect PreferNoSchedule (TaintToleration)"),
    "NodeResourceLimits": ("1.20", f"{_FIT}"),
}


def plugin_hint(name: str) -> str:
    """The replacement of a removed plugin, or the closest existing name; empty if there is none."""
    if name in IN_TREE_PLUGINS:
        return ""
    if name not in _RENAMED_PLUGINS:
        close = get_close_matches(name, IN_TREE_PLUGINS, n=1)
        return f'did you mean "{close[0]}"?' if close else ""
    removed_in, instead = _RENAMED_PLUGINS[name]
    return f"it was removed in Kubernetes {removed_in}; use {instead}"


def unsupported_kind(root: Mapping, api_version: str, kind: str) -> list[FieldProblem]:
    """Why a document of another version or kind is rejected, and its replacement."""
    api_node, kind_node = _value(root, "apiVersion"), _value(root, "kind")
    message = f'no kind "{kind}" is registered for version "{api_version}"'
    if api_version == API_VERSION:
        # Plugin arguments are kinds of this version too, but not configurations.
        if kind in {f"{plugin}Args" for plugin in ARGS_BY_PLUGIN}:
            message = f"couldn't decode as {KIND}, got {api_version}, Kind={kind}"
        return [_at(kind_node, "kind", f'{message}; the supported kind is "{KIND}"')]
    if kind == "Policy":
        message += f"; scheduling policies were removed in Kubernetes 1.23: write a {KIND}"
    elif api_version in _REMOVED_IN:
        message += f"; it was removed in Kubernetes {_REMOVED_IN[api_version]}"
    message += f'; the supported version is "{API_VERSION}"'
    return [_at(api_node, "apiVersion", message)]


def _value(mapping: Mapping, name: str) -> Node | None:
    return next((value for key, value in mapping.entries if key.text == name), None)


def _at(node: Node | None, path: str, message: str) -> FieldProblem:
    if node is None:
        return FieldProblem(path, message)
    return FieldProblem(path, message, node.line, node.column)
