"""The patch types, and the verb that applies them to stored objects."""

from __future__ import annotations

from kubesched.playground.registry.patching.apply import apply_object
from kubesched.playground.registry.patching.verb import PatchKind, patch_object

__all__ = ["PatchKind", "apply_object", "patch_object"]
