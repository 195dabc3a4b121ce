"""Rows of endpoint slices, ingresses, network policies and autoscalers."""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.embedded.apimachinery.objects import JsonObject
from kubesched.embedded.handlers.tables.table import AGE, NAME, Column
from kubesched.embedded.registry.scale import selector_text

_NONE = "<none>"
_SHOWN = 3


def _some(items: Sequence[str], otherwise: str) -> str:
    """The first few items, and how many more there are."""
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
    rules = (obj.get("spec") or {}).get("rules") or ()
    return _some([rule["host"] for rule in rules if rule.get("host")], "*")


def _reference(obj: JsonObject) -> str:
    target = (obj.get("spec") or {}).get("scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def _targets(obj: JsonObject) -> str:
    """What an autoscaler aims at; nothing here measures where it is."""
    texts = []
    for metric in (obj.get("spec") or {}).get("metrics") or ():
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
    return ", ".join(texts) or _NONE


def _spec(field: str, otherwise: str) -> Column:
    titles = {"minReplicas": "MinPods", "maxReplicas": "MaxPods", "ingressClassName": "Class"}
    return Column(titles[field], lambda obj, _: str((obj.get("spec") or {}).get(field, otherwise)))


ENDPOINT_SLICE_COLUMNS = (
    NAME,
    Column("AddressType", lambda obj, _: str(obj.get("addressType", ""))),
    Column("Ports", lambda obj, _: _slice_ports(obj)),
    Column("Endpoints", lambda obj, _: _slice_endpoints(obj)),
    AGE,
)
INGRESS_COLUMNS = (
    NAME,
    _spec("ingressClassName", _NONE),
    Column("Hosts", lambda obj, _: _hosts(obj)),
    Column("Address", lambda _obj, _: ""),
    Column("Ports", lambda obj, _: "80, 443" if (obj.get("spec") or {}).get("tls") else "80"),
    AGE,
)
NETWORK_POLICY_COLUMNS = (
    NAME,
    Column(
        "Pod-Selector",
        lambda obj, _: selector_text((obj.get("spec") or {}).get("podSelector") or {}) or _NONE,
    ),
    AGE,
)
AUTOSCALER_COLUMNS = (
    NAME,
    Column("Reference", lambda obj, _: _reference(obj)),
    Column("Targets", lambda obj, _: _targets(obj)),
    _spec("minReplicas", "<unset>"),
    _spec("maxReplicas", "0"),
    Column("Replicas", lambda obj, _: int((obj.get("status") or {}).get("currentReplicas") or 0)),
    AGE,
)
