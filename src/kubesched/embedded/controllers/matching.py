"""Selectors given as JSON, as tests on labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kubesched.embedded.label_selectors import selector_matches
from kubesched.embedded.objects import JsonObject

LabelMatcher = Callable[[Mapping[str, str]], bool]


def label_matcher(selector: JsonObject | None) -> LabelMatcher:
    """What a LabelSelector accepts: no selector accepts nothing, an empty one everything."""
    return lambda labels: selector_matches(selector, labels)


def set_matcher(selector: Mapping[str, str] | None) -> LabelMatcher:
    """What a plain label map accepts (ReplicationControllers); an empty one accepts nothing."""
    return label_matcher({"matchLabels": dict(selector)} if selector else None)
