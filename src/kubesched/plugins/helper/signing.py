"""Pod signature fragments shared by several plugins, in upstream's format."""

from __future__ import annotations

from typing import Any

import msgspec

from kubesched.api.core_v1 import Pod


def tolerations_fragment(pod: Pod) -> dict[str, Any]:
    ordered = sorted(
        pod.spec.tolerations or (), key=lambda toleration: (toleration.key, toleration.value)
    )
    return {"v1.Pod.Spec.Tolerations": [msgspec.to_builtins(toleration) for toleration in ordered]}
