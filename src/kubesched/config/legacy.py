"""Replacements for removed features: old API versions, Policy files, algorithm providers, plugins.

None of these are supported, but all still exist in repositories, so the error names the replacement
of each item, with its position.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from kubesched.base.errors import FieldProblem
from kubesched.config.default_plugins import IN_TREE_PLUGINS
from kubesched.config.plugin_args import ARGS_BY_PLUGIN
from kubesched.config.types import API_VERSION, GROUP, KIND
from kubesched.config.yaml_nodes import Mapping, Node, Scalar, Sequence


@dataclass(frozen=True, slots=True)
class _Version:
    removed_in: str
    changes: str


_VERSIONS = {
    "componentconfig/v1alpha1": _Version("1.12", "the file has to be rewritten"),
    f"{GROUP}/v1alpha1": _Version(
        "1.18",
        "plugins and pluginConfig move into a profile, algorithmSource disappears, "
        "hardPodAffinitySymmetricWeight becomes InterPodAffinityArgs.hardPodAffinityWeight",
    ),
    f"{GROUP}/v1alpha2": _Version(
        "1.19",
        "healthzBindAddress, metricsBindAddress, disablePreemption, bindTimeoutSeconds and the "
        "unreserve point disappear (disable DefaultPreemption; set VolumeBindingArgs)",
    ),
    f"{GROUP}/v1beta1": _Version(
        "1.23", "healthzBindAddress, metricsBindAddress and several plugins disappear"
    ),
    f"{GROUP}/v1beta2": _Version("1.28", "healthzBindAddress and metricsBindAddress disappear"),
    f"{GROUP}/v1beta3": _Version("1.29", "the fields are the same"),
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

_FILTERS_BY_PREDICATE = {
    "CheckNodeCondition": "TaintToleration (node conditions are taints today)",
    "CheckNodeDiskPressure": "TaintToleration (node conditions are taints today)",
    "CheckNodeMemoryPressure": "TaintToleration (node conditions are taints today)",
    "CheckNodePIDPressure": "TaintToleration (node conditions are taints today)",
    "CheckNodeLabelPresence": "NodeAffinity with addedAffinity",
    "CheckNodeUnschedulable": "NodeUnschedulable",
    "CheckServiceAffinity": "InterPodAffinity, or topology spread constraints in the pods",
    "CheckVolumeBinding": "VolumeBinding",
    "EvenPodsSpread": "PodTopologySpread",
    "GeneralPredicates": "NodeResourcesFit, NodeName, NodePorts and NodeAffinity",
    "HostName": "NodeName",
    "MatchInterPodAffinity": "InterPodAffinity",
    "MatchNodeSelector": "NodeAffinity",
    "MaxAzureDiskVolumeCount": "NodeVolumeLimits",
    "MaxCSIVolumeCountPred": "NodeVolumeLimits",
    "MaxCinderVolumeCount": "NodeVolumeLimits",
    "MaxEBSVolumeCount": "NodeVolumeLimits",
    "MaxGCEPDVolumeCount": "NodeVolumeLimits",
    "NoDiskConflict": "VolumeRestrictions",
    "NoVolumeZoneConflict": "VolumeZone",
    "PodFitsHost": "NodeName",
    "PodFitsHostPorts": "NodePorts",
    "PodFitsPorts": "NodePorts",
    "PodFitsResources": "NodeResourcesFit",
    "PodToleratesNodeNoExecuteTaints": "TaintToleration",
    "PodToleratesNodeTaints": "TaintToleration",
}

_SCORES_BY_PRIORITY = {
    "BalancedResourceAllocation": "NodeResourcesBalancedAllocation",
    "EqualPriority": "no Score plugin at all",
    "EvenPodsSpreadPriority": "PodTopologySpread",
    "ImageLocalityPriority": "ImageLocality",
    "InterPodAffinityPriority": "InterPodAffinity",
    "LeastRequestedPriority": f"{_FIT} with scoringStrategy type LeastAllocated",
    "MostRequestedPriority": f"{_FIT} with scoringStrategy type MostAllocated",
    "NodeAffinityPriority": "NodeAffinity",
    "NodePreferAvoidPodsPriority": "TaintToleration (taints with effect PreferNoSchedule)",
    "RequestedToCapacityRatioPriority": (
        f"{_FIT} with scoringStrategy type RequestedToCapacityRatio"
    ),
    "ResourceLimitsPriority": f"{_FIT}",
    "SelectorSpreadPriority": "PodTopologySpread with its System default constraints",
    "ServiceSpreadingPriority": "PodTopologySpread with its System default constraints",
    "TaintTolerationPriority": "TaintToleration",
}

_PROVIDERS = {
    "DefaultProvider": "a profile without plugins: it has the same defaults",
    "ClusterAutoscalerProvider": (
        f"a profile with {_FIT} and scoringStrategy type MostAllocated in its pluginConfig"
    ),
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
    if kind == "Policy":
        return [_policy(api_version, kind_node), *_policy_details(root)]
    message = f'no kind "{kind}" is registered for version "{api_version}"'
    if api_version == API_VERSION:
        # Plugin arguments are kinds of this version too, but not configurations.
        if kind in {f"{plugin}Args" for plugin in ARGS_BY_PLUGIN}:
            message = f"couldn't decode as {KIND}, got {api_version}, Kind={kind}"
        return [_at(kind_node, "kind", f'{message}; the supported kind is "{KIND}"')]
    version = _VERSIONS.get(api_version)
    if version is not None:
        message += (
            f"; it was removed in Kubernetes {version.removed_in}: "
            f'use "{API_VERSION}" ({version.changes})'
        )
    else:
        message += f'; the supported version is "{API_VERSION}"'
    return [_at(api_node, "apiVersion", message), *_algorithm_source(root)]


def _policy(api_version: str, kind_node: Node | None) -> FieldProblem:
    return _at(
        kind_node,
        "kind",
        f'no kind "Policy" is registered for version "{api_version}"; scheduling policies were '
        f"removed in Kubernetes 1.23: write a {KIND} ({API_VERSION}), where predicates are "
        "Filter plugins and priorities are Score plugins",
    )


def _policy_details(root: Mapping) -> Iterator[FieldProblem]:
    for key, singular, point, table in (
        ("predicates", "predicate", "Filter", _FILTERS_BY_PREDICATE),
        ("priorities", "priority", "Score", _SCORES_BY_PRIORITY),
    ):
        listed = _value(root, key)
        for index, entry in enumerate(listed.items if isinstance(listed, Sequence) else ()):
            node = _value(entry, "name") if isinstance(entry, Mapping) else None
            name = node.text if isinstance(node, Scalar) else ""
            instead = table.get(name)
            yield _at(
                node or entry,
                f"{key}[{index}].name",
                f'{singular} "{name}" is today the {point} plugin {instead}'
                if instead
                else f'{singular} "{name}" has no in-tree equivalent; write it as a {point} plugin',
            )
    for key, instead in (
        ("extenders", f"move it to extenders of {KIND} (enableHttps is now enableHTTPS)"),
        (
            "hardPodAffinitySymmetricWeight",
            "today hardPodAffinityWeight in the args of InterPodAffinity",
        ),
        ("alwaysCheckAllPredicates", "has no equivalent: filters stop at the first failure"),
    ):
        node = _value(root, key)
        if node is not None:
            yield _at(node, key, instead)


def _algorithm_source(root: Mapping) -> Iterator[FieldProblem]:
    source = _value(root, "algorithmSource")
    if not isinstance(source, Mapping):
        return
    provider = _value(source, "provider")
    if isinstance(provider, Scalar):
        instead = _PROVIDERS.get(provider.text, "a profile that names its plugins")
        yield _at(
            provider,
            "algorithmSource.provider",
            f'algorithm provider "{provider.text}" does not exist any more; write {instead}',
        )
    policy = _value(source, "policy")
    if policy is not None:
        yield _at(
            policy,
            "algorithmSource.policy",
            "scheduling policies were removed in Kubernetes 1.23; write profiles instead",
        )


def _value(mapping: Mapping, name: str) -> Node | None:
    return next((value for key, value in mapping.entries if key.text == name), None)


def _at(node: Node | None, path: str, message: str) -> FieldProblem:
    if node is None:
        return FieldProblem(path, message)
    return FieldProblem(path, message, node.line, node.column)
