"""Warnings for clients (kubectl prints them): what was stored although nothing here acts on it."""

from __future__ import annotations

from kubesched.embedded.apimachinery.catalog import ResourceInfo

STORED_ONLY = "{kind}: stored, nothing acts on it here"


def warnings_for(resource: ResourceInfo) -> list[str]:
    """What the client should know about the object it wrote."""
    if resource.is_stored_only:
        return [STORED_ONLY.format(kind=resource.kind)]
    return []
