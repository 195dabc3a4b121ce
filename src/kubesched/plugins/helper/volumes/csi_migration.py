"""CSI migration: translates in-tree volumes to the CSI driver that replaces their plugin.

A translation gives the driver, the volume handle, and node affinity with the driver's topology key
in place of the zone label. Other parts of a translated volume are never read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from msgspec import structs

from kubesched.api.core_v1 import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    CinderVolumeSource,
    GCEPersistentDiskVolumeSource,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeSpec,
    PortworxVolumeSource,
    Volume,
    VolumeNodeAffinity,
    VsphereVirtualDiskVolumeSource,
)
from kubesched.api.storage_v1 import CSINode

MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"
"""CSINode annotation: in-tree plugins migrated on the node, comma-separated."""

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
ZONE_SEPARATOR: Final = "__"

_UNSPECIFIED: Final = "UNSPECIFIED"
_EBS_VOLUME: Final = re.compile(r"vol-[^/]*")


class TranslationError(Exception):
    """The volume has no equivalent in the CSI driver."""


@dataclass(frozen=True, slots=True)
class InTreePlugin:
    """An in-tree plugin, the field of its volume source, and the CSI driver that replaces it."""

    name: str
    source: str
    driver: str
    topology_key: str = ""
    """The driver's zone label; empty if affinity is not translated."""
    is_migrated: bool = True
    """Whether the scheduler treats the migration as enabled."""


_PLUGINS: Final = (
    InTreePlugin(
        "kubernetes.io/aws-ebs",
        "aws_elastic_block_store",
        "ebs.csi.aws.com",
        "topology.ebs.csi.aws.com/zone",
    ),
    InTreePlugin(
        "kubernetes.io/gce-pd",
        "gce_persistent_disk",
        "pd.csi.storage.gke.io",
        "topology.gke.io/zone",
    ),
    InTreePlugin("kubernetes.io/azure-disk", "azure_disk", "disk.csi.azure.com"),
    InTreePlugin(
        "kubernetes.io/cinder",
        "cinder",
        "cinder.csi.openstack.org",
        "topology.cinder.csi.openstack.org/zone",
    ),
    InTreePlugin("kubernetes.io/portworx-volume", "portworx_volume", "pxd.portworx.com"),
    # Upstream: these two have translators, but are missing from the scheduler's own list.
    InTreePlugin("kubernetes.io/azure-file", "azure_file", "file.csi.azure.com", is_migrated=False),
    InTreePlugin(
        "kubernetes.io/vsphere-volume",
        "vsphere_volume",
        "csi.vsphere.vmware.com",
        is_migrated=False,
    ),
)
_BY_NAME: Final = {plugin.name: plugin for plugin in _PLUGINS}

_Source = (
    AWSElasticBlockStoreVolumeSource
    | GCEPersistentDiskVolumeSource
    | AzureDiskVolumeSource
    | CinderVolumeSource
    | PortworxVolumeSource
    | VsphereVirtualDiskVolumeSource
)


def plugin_of(spec: PersistentVolumeSpec | Volume) -> InTreePlugin | None:
    """The in-tree plugin of a persistent or inline volume; None if there is no translation."""
    for plugin in _PLUGINS:
        if getattr(spec, plugin.source) is not None:
            return plugin
    return None


def plugin_named(provisioner: str) -> InTreePlugin | None:
    return _BY_NAME.get(provisioner)


def hands_over(node: CSINode | None, plugin: InTreePlugin) -> bool:
    """Is the plugin migrated to its CSI driver on this node?"""
    annotations = None if node is None else node.metadata.annotations
    return plugin.is_migrated and plugin.name in migrated_plugins(annotations)


def migrated_plugins(annotations: dict[str, str] | None) -> Sequence[str]:
    listed = (annotations or {}).get(MIGRATED_PLUGINS, "")
    return listed.split(",") if listed else ()


# -- handles ---------------------------------------------------------------------------------------


def volume_handle(plugin: InTreePlugin, volume: PersistentVolume) -> str:
    """The handle of a persistent volume; raises TranslationError."""
    source: _Source = getattr(volume.spec, plugin.source)
    if isinstance(source, GCEPersistentDiskVolumeSource):
        return _gce_handle(source.pd_name, volume.metadata.labels or {})
    return _handle(source)


def inline_handle(plugin: InTreePlugin, volume: Volume) -> str:
    """The handle of an inline volume; raises TranslationError."""
    source: _Source = getattr(volume, plugin.source)
    if isinstance(source, GCEPersistentDiskVolumeSource):
        return _gce_handle(source.pd_name, {})
    return _handle(source)


def _handle(source: _Source) -> str:
    match source:
        case AWSElasticBlockStoreVolumeSource():
            return _ebs_handle(source.volume_id)
        case AzureDiskVolumeSource():
            if source.kind is not None and source.kind.lower() != "managed":
                raise TranslationError(f"kind({source.kind}) is not supported in csi migration")
            return source.disk_uri
        case CinderVolumeSource() | PortworxVolumeSource():
            return source.volume_id
        case VsphereVirtualDiskVolumeSource():
            return source.volume_path
    return ""  # Azure File handles are never compared


def _ebs_handle(volume_id: str) -> str:
    """`aws://zone/vol-1` and `vol-1` are the same volume."""
    if not volume_id.startswith("aws://"):
        return volume_id
    prefix = "failed to translate Kubernetes ID to EBS Volume ID"
    try:
        handle = urlsplit(volume_id).path.strip("/")
    except ValueError as error:
        raise TranslationError(f"{prefix} Invalid disk name ({volume_id}): {error}") from error
    if not _EBS_VOLUME.fullmatch(handle):
        raise TranslationError(f"{prefix} Invalid format for AWS volume ({volume_id})")
    return handle


def _gce_handle(disk: str, labels: dict[str, str]) -> str:
    zones = (labels.get(BETA_ZONE) or labels.get(ZONE) or "").split(ZONE_SEPARATOR)
    if len(zones) > 1:
        return f"projects/{_UNSPECIFIED}/regions/{_gce_region(zones)}/disks/{disk}"
    return f"projects/{_UNSPECIFIED}/zones/{zones[0] or _UNSPECIFIED}/disks/{disk}"


def _gce_region(zones: Sequence[str]) -> str:
    regions = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != 3:
            raise TranslationError(
                "failed to get region from zones: zone in unexpected format, expected:"
                f" {{locale}}-{{region}}-{{zone}}, got: {zone}"
            )
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        listed = " ".join(f"{region}:{{}}" for region in sorted(regions))
        raise TranslationError(
            "failed to get region from zones: multiple or no regions gotten from zones, "
            f"got: map[{listed}]"
        )
    return regions.pop()


# -- topology --------------------------------------------------------------------------------------


def translated_affinity(
    plugin: InTreePlugin, volume: PersistentVolume
) -> VolumeNodeAffinity | None:
    """Node affinity with the driver's zone key; raises TranslationError."""
    volume_handle(plugin, volume)
    affinity = volume.spec.node_affinity
    if not plugin.topology_key:
        return affinity
    terms = _terms(affinity)
    labels = volume.metadata.labels or {}
    zone, region = _labels_in_use(terms, labels)
    if _has_values(terms, zone):
        terms = _rekeyed(terms, zone, plugin.topology_key)
    elif zone in labels:
        # Upstream: the label's zones are added to every term, even to one that has other
        # requirements.
        zones = sorted({name.strip() for name in labels[zone].split(ZONE_SEPARATOR)} - {""})
        if zones:
            added = NodeSelectorRequirement(key=plugin.topology_key, operator="In", values=zones)
            terms = [
                structs.replace(term, match_expressions=[*(term.match_expressions or ()), added])
                for term in terms or [NodeSelectorTerm()]
            ]
    if region == BETA_REGION and _has_values(terms, region):
        terms = _rekeyed(terms, region, REGION)
    if terms == _terms(affinity):
        return affinity
    return VolumeNodeAffinity(required=NodeSelector(node_selector_terms=terms))


def _terms(affinity: VolumeNodeAffinity | None) -> list[NodeSelectorTerm]:
    if affinity is None or affinity.required is None:
        return []
    return affinity.required.node_selector_terms or []


def _labels_in_use(terms: Sequence[NodeSelectorTerm], labels: dict[str, str]) -> tuple[str, str]:
    """The volume's zone and region labels (GA or beta), from its affinity or else its labels."""
    keys = {requirement.key for term in terms for requirement in term.match_expressions or ()}
    for known in (keys, labels):
        if ZONE in known:
            return ZONE, REGION
        if BETA_ZONE in known:
            return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _has_values(terms: Sequence[NodeSelectorTerm], key: str) -> bool:
    return any(
        requirement.key == key and requirement.values
        for term in terms
        for requirement in term.match_expressions or ()
    )


def _rekeyed(terms: Sequence[NodeSelectorTerm], old: str, new: str) -> list[NodeSelectorTerm]:
    return [
        structs.replace(
            term,
            match_expressions=[
                structs.replace(requirement, key=new) if requirement.key == old else requirement
                for requirement in term.match_expressions
            ],
        )
        if term.match_expressions
        else term
        for term in terms
    ]
