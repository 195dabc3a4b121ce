"""Which feature gates a plugin sees."""

from __future__ import annotations

from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.framework.handle import Handle


def gates_of(handle: Handle) -> FeatureGates:
    """The gates of the process; the release's defaults where nobody set any."""
    gates: FeatureGates | None = handle.feature_gates
    return DEFAULT_GATES if gates is None else gates
