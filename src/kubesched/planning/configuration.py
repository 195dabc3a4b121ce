"""The configuration that plans run under: the scheduler's own, without what is outside of it."""

from __future__ import annotations

from dataclasses import replace

from kubesched.config.defaults import with_extender_resources
from kubesched.config.types import KubeSchedulerConfiguration


def without_extenders(
    config: KubeSchedulerConfiguration,
) -> tuple[KubeSchedulerConfiguration, list[str]]:
    """The configuration with extenders off, and the note that says so."""
    if not config.extenders:
        return config, []
    asked = ", ".join(each.url_prefix for each in config.extenders)
    note = f"extenders were not asked: {asked}; they may reject or prefer nodes"
    # What extenders manage, NodeResourcesFit ignores, whether they are asked or not.
    return replace(with_extender_resources(config), extenders=()), [note]
