"""The published schema: the file is what the records say, answers follow it, and codes are
stable.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from explaining import explain

import kubesched.insight.explain
from kubesched.insight.explain import reasons
from kubesched.insight.explain.model import Explanation, schema
from kubesched.insight.explain.reasons import ReasonCode
from kubesched.testing import make_node, make_pod

SCHEMA = Path(kubesched.insight.explain.__file__).with_name("schema.json")
REFERENCE = Path(__file__).parents[4] / "docs" / "reference" / "explain.md"

CODES = [
    "AddedAffinityMismatch",
    "BeingDeleted",
    "BoundVolumeMissing",
    "CSIDriverMissing",
    "ClaimInUse",
    "ClaimNotReady",
    "ClaimOnOtherNodes",
    "DevicesUnavailable",
    "DiskConflict",
    "ExistingPodAntiAffinityViolated",
    "FeatureMissing",
    "HeldByPermit",
    "HostPortTaken",
    "InsufficientResource",
    "NoVolumeToBind",
    "NodeAffinityConflict",
    "NodeAffinityMismatch",
    "NodeNameMismatch",
    "NodeUnschedulable",
    "NotEnoughStorage",
    "NotEnqueued",
    "NotSelectedByPreFilter",
    "ObjectMissing",
    "OtherScheduler",
    "PluginError",
    "PodAffinityUnsatisfied",
    "PodAntiAffinityViolated",
    "PreemptionUnderWay",
    "Rejected",
    "RejectedUnresolvably",
    "SchedulingGated",
    "TooManyPods",
    "TooManyVolumes",
    "TopologyLabelMissing",
    "TopologySpreadViolated",
    "UnboundClaims",
    "UntoleratedTaint",
    "VolumeNodeAffinityMismatch",
    "VolumeZoneMismatch",
]


def test_the_schema_file_is_up_to_date():
    """Write it anew with `kubesched explain schema`."""
    assert json.loads(SCHEMA.read_text()) == schema()


@pytest.mark.parametrize(
    "pod",
    [
        make_pod("a").cpu("1"),
        make_pod("a").cpu("64"),
        make_pod("a").gate("g"),
        make_pod("a").on("n"),
    ],
    ids=["fits", "never", "waiting", "placed"],
)
def test_answers_have_every_field_of_the_schema(pod):
    explanation = explain(pod, make_node("n"), make_node("m").taint("gpu"))
    answer = json.loads(msgspec.json.encode(explanation))
    _check(answer, schema(), schema()["$ref"])
    msgspec.convert(answer, Explanation)


def _check(value: object, whole: dict, ref: str) -> None:
    definition = whole["$defs"][ref.rsplit("/", 1)[1]]
    if "enum" in definition:
        assert value in definition["enum"]
        return
    assert isinstance(value, dict)
    assert set(value) == set(definition["properties"]) == set(definition["required"])
    for name, kind in definition["properties"].items():
        _check_value(value[name], whole, kind)


def _check_value(value: object, whole: dict, kind: dict) -> None:
    if "anyOf" in kind:
        kinds = [each for each in kind["anyOf"] if each.get("type") != "null"]
        if value is not None:
            _check_value(value, whole, kinds[0])
    elif "$ref" in kind:
        _check(value, whole, kind["$ref"])
    elif kind.get("type") == "array":
        for each in value:
            _check_value(each, whole, kind["items"])
    elif kind.get("type") == "object":
        for each in value.values():
            _check_value(each, whole, kind["additionalProperties"])
    else:
        types = {"string": str, "integer": int, "boolean": bool}
        assert isinstance(value, types[kind["type"]])


def all_codes() -> list[str]:
    named = [value for value in vars(reasons).values() if isinstance(value, ReasonCode)]
    by_pattern = [code for _, code in reasons._BY_PATTERN]
    return sorted({each.code for each in (*named, *reasons._BY_REASON.values(), *by_pattern)})


def test_reason_codes_do_not_change():
    """A code may be added; one that is missing here has been taken from users."""
    assert set(all_codes()) >= set(CODES)


def test_every_reason_code_is_documented():
    text = REFERENCE.read_text()
    assert [code for code in all_codes() if f"`{code}`" not in text] == []
