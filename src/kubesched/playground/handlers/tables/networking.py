"""Rows of endpoint slices, ingresses, network policies and autoscalers."""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.playground.apimachinery.objects import JsonObject, spec_of, status_of
from kubesched.playground.handlers.tables.table import AGE, NAME, NONE, Column, text
from kubesched.playground.registry.scale import selector_text

_SHOWN = 3


def _some(items: Sequence[str], otherwise: str) -> str:
    """The first few items, and the number of others."""
    text = ",".join(items[:_SHOWN])
    more = len(items) - _SHOWN
    return f"{text} + {more} more..." if more > 0 else text or otherwise


def _slice_ports(obj: JsonObject) -> str:
    ports = [str(port.get("port") or port.get("name") or "*") for port in obj.get("ports") or ()]
    return _some(ports, "<unset>")


def _slice_endpoints(obj: JsonObject) -> str:
    addresses = [
        address
        for endpoint in obj.get("endpoints") or ()
        for address in endpoint.get("addresses") or ()
    ]
    return _some(addresses, "<unset>")


def _hosts(obj: JsonObject) -> str:
    rules = spec_of(obj).get("rules") or ()
    return _some([rule["host"] for rule in rules if rule.get("host")], "*")


def _reference(obj: JsonObject) -> str:
    target = spec_of(obj).get("scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def _targets(obj: JsonObject) -> str:
    """The targets of an autoscaler; current values are not measured here."""
    texts = []
    for metric in spec_of(obj).get("metrics") or ():
        source = metric.get("resource") or metric.get("containerResource")
        if source is None:
            texts.append("<unknown>")
            continue
        target = source.get("target") or {}
        percent = target.get("averageUtilization")
        wanted = target.get("averageValue", "<auto>") if percent is None else f"{percent}%"
        texts.append(f"{source.get('name', '')}: <unknown>/{wanted}")
    if len(texts) > 2:
        return f"{', '.join(texts[:2])} + {len(texts) - 2} more..."
    return ", ".join(texts) or NONE


NETWORKING: dict[str, tuple[Column, ...]] = {
    "endpointslices.discovery.k8s.io": (
        NAME,
        text("AddressType", "addressType"),
        Column("Ports", lambda obj, _: _slice_ports(obj)),
        Column("Endpoints", lambda obj, _: _slice_endpoints(obj)),
        AGE,
    ),
    "horizontalpodautoscalers.autoscaling": (
        NAME,
        Column("Reference", lambda obj, _: _reference(obj)),
        Column("Targets", lambda obj, _: _targets(obj)),
        text("MinPods", "spec", "minReplicas", default="<unset>"),
        text("MaxPods", "spec", "maxReplicas", default="0"),
        Column("Replicas", lambda obj, _: int(status_of(obj).get("currentReplicas") or 0)),
        AGE,
    ),
    "ingresses.networking.k8s.io": (
        NAME,
        text("Class", "spec", "ingressClassName", default=NONE),
        Column("Hosts", lambda obj, _: _hosts(obj)),
        Column("Address", lambda _obj, _: ""),
        Column("Ports", lambda obj, _: "80, 443" if spec_of(obj).get("tls") else "80"),
        AGE,
    ),
    "networkpolicies.networking.k8s.io": (
        NAME,
        Column(
            "Pod-Selector",
            lambda obj, _: selector_text(spec_of(obj).get("podSelector") or {}) or NONE,
        ),
        AGE,
    ),
}
"""Columns by kind, in the order of `kubectl get`."""
