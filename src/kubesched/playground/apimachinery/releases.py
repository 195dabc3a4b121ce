"""The Kubernetes releases that the playground can be, and how their API servers differ.

`up --kubernetes-version` chooses one, through the reference of the cluster's feature gates. A
behaviour is a field of `Release` with one value per release; code asks for it by name, once, when
it is built. What a feature gate decides is not here but in `resources.gated_fields`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kubesched.config.features import FeatureGates
from kubesched.config.references import REFERENCES


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release of Kubernetes; the behaviours are those of the newest one by default."""

    version: str
    """Minor version, as `--kubernetes-version` takes it."""

    taint_rules_are_stable: bool = True
    """DeviceTaintRules are served as `resource.k8s.io/v1`, and deleting one answers a Status."""
    range_steps_are_checked: bool = True
    """Steps of a `validRange` are positive, and its bounds 64-bit numbers.

    What is wrong with the default is reported at the default, not at the bound.
    """
    pod_level_limits_are_defaulted: bool = True
    """Pod-level requests and limits are completed after admission and when a pod is resized.

    Otherwise only requests are, beside limits, on every write.
    """

    @property
    def git_version(self) -> str:
        """The full version, as components report it."""
        return f"v{REFERENCES[self.version].release}"


RELEASES: Final = {
    release.version: release
    for release in (
        Release(
            version="1.36",
            taint_rules_are_stable=False,
            range_steps_are_checked=False,
            pod_level_limits_are_defaulted=False,
        ),
        Release(version="1.37"),
    )
}


def release_of(gates: FeatureGates) -> Release:
    """The release of a cluster with these gates."""
    return RELEASES[gates.reference.version]
