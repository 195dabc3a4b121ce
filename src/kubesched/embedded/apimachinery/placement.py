"""JSON objects in, the API's own matching out: node affinity, taints and tolerations."""

from __future__ import annotations

import msgspec

from kubesched.api.core_v1 import NodeSelector, Pod, Taint, Toleration
from kubesched.api.node_selectors import ParsedNodeSelector, RequiredNodeAffinity
from kubesched.embedded.apimachinery.objects import JsonObject, spec_of


def required_affinity(pod_spec: JsonObject) -> RequiredNodeAffinity:
    """What a pod's nodeSelector and required node affinity demand."""
    relevant = {key: pod_spec[key] for key in ("nodeSelector", "affinity") if pod_spec.get(key)}
    return RequiredNodeAffinity(msgspec.convert({"spec": relevant}, Pod))


def node_selector(selector: JsonObject) -> ParsedNodeSelector:
    return ParsedNodeSelector(msgspec.convert(selector, NodeSelector))


def taints_of(node: JsonObject) -> list[Taint]:
    return msgspec.convert(spec_of(node).get("taints") or [], list[Taint])


def tolerations_of(pod_spec: JsonObject) -> list[Toleration]:
    return msgspec.convert(pod_spec.get("tolerations") or [], list[Toleration])
