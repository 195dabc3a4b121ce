"""Identity of a StatefulSet's pods: names, ordinals, labels and volumes."""

from __future__ import annotations

import re

from kubesched.playground.apimachinery.objects import JsonObject, labels_of, name_of, spec_of
from kubesched.playground.controllers.controller_revisions import CONTROLLER_REVISION_HASH
from kubesched.playground.controllers.pods import pod_from_template

POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"

_MEMBER_NAME = re.compile(r"(.*)-([0-9]+)")


def ordinal_of(pod: JsonObject) -> int:
    """The number at the end of the pod's name, or -1."""
    match = _MEMBER_NAME.fullmatch(name_of(pod))
    return int(match.group(2)) if match else -1


def is_member(stateful_set: JsonObject, pod: JsonObject) -> bool:
    """Whether the pod belongs to this set, judged by its name."""
    match = _MEMBER_NAME.fullmatch(name_of(pod))
    return match is not None and match.group(1) == name_of(stateful_set)


def first_ordinal(stateful_set: JsonObject) -> int:
    return int((spec_of(stateful_set).get("ordinals") or {}).get("start") or 0)


def ordinals(stateful_set: JsonObject) -> range:
    """The ordinals that should exist."""
    start = first_ordinal(stateful_set)
    return range(start, start + int(spec_of(stateful_set).get("replicas", 1)))


def pod_name(stateful_set: JsonObject, ordinal: int) -> str:
    return f"{name_of(stateful_set)}-{ordinal}"


def claim_name(template: JsonObject, pod: str) -> str:
    return f"{template['metadata']['name']}-{pod}"


def claim_templates(stateful_set: JsonObject) -> list[JsonObject]:
    return spec_of(stateful_set).get("volumeClaimTemplates") or []


def build_pod(
    stateful_set: JsonObject, template: JsonObject, revision_name: str, ordinal: int
) -> JsonObject:
    """The pod of an ordinal, built from a revision's template."""
    pod = pod_from_template(template, stateful_set)
    name = pod_name(stateful_set, ordinal)
    metadata = pod["metadata"]
    del metadata["generateName"]
    metadata["name"] = name
    metadata["labels"] = {
        **(metadata.get("labels") or {}),
        POD_NAME_LABEL: name,
        POD_INDEX_LABEL: str(ordinal),
        CONTROLLER_REVISION_HASH: revision_name,
    }
    spec = pod["spec"]
    spec["hostname"] = name
    if spec_of(stateful_set).get("serviceName"):
        spec["subdomain"] = spec_of(stateful_set)["serviceName"]
    claims = _claim_volumes(stateful_set, name)
    others = [volume for volume in spec.get("volumes") or () if volume["name"] not in claims]
    if claims or others:
        spec["volumes"] = [*claims.values(), *others]
    return pod


def revision_name_of(pod: JsonObject) -> str:
    return labels_of(pod).get(CONTROLLER_REVISION_HASH, "")


def identity_labels(stateful_set: JsonObject, pod: JsonObject) -> dict[str, str] | None:
    """Identity labels that the pod lacks; None if it has them."""
    wanted = {POD_NAME_LABEL: name_of(pod), POD_INDEX_LABEL: str(ordinal_of(pod))}
    return None if wanted.items() <= labels_of(pod).items() else wanted


def _claim_volumes(stateful_set: JsonObject, pod: str) -> dict[str, JsonObject]:
    return {
        template["metadata"]["name"]: {
            "name": template["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": claim_name(template, pod)},
        }
        for template in claim_templates(stateful_set)
    }
