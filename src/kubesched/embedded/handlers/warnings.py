"""Warnings for clients (kubectl prints them): what was stored although nothing here acts on it."""

from __future__ import annotations

from kubesched.embedded.objects import JsonObject
from kubesched.embedded.resources.catalog import ResourceInfo
from kubesched.embedded.resources.custom_resources import DEFINITIONS
from kubesched.embedded.resources.structural_schema import has_rules

STORED_ONLY = "{kind}: stored, nothing acts on it here"
NO_RULES = "x-kubernetes-validations: stored, rules are not evaluated here"


def warnings_for(resource: ResourceInfo, obj: JsonObject) -> list[str]:
    """What the client should know about the object it wrote."""
    if resource.is_stored_only:
        return [STORED_ONLY.format(kind=resource.kind)]
    if resource.key == DEFINITIONS and has_rules(obj.get("spec")):
        return [NO_RULES]
    return []
