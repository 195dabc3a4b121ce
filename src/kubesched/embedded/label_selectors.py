"""The structured `LabelSelector` of specs, matched against labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubesched.embedded.objects import Json


def selector_matches(selector: Json, labels: Mapping[str, str]) -> bool:
    """Whether the labels satisfy the selector: none selects nothing, an empty one everything."""
    if not isinstance(selector, dict):
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(_expression_matches(each, labels) for each in selector.get("matchExpressions") or ())


def _expression_matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, operator = expression.get("key", ""), expression.get("operator")
    values = expression.get("values") or ()
    if operator == "In":
        return key in labels and labels[key] in values
    if operator == "NotIn":
        return key not in labels or labels[key] not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    return False
