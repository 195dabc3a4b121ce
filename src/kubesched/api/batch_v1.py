"""batch/v1: pods that run to completion.

Spec and status are plain JSON values: only the embedded controller reads them.
"""

from __future__ import annotations

from typing import Any

from kubesched.api.meta import ObjectMeta, Record, constant


class Job(Record):
    """Pods that run until enough of them have succeeded."""

    kind: str = constant("Job")
    api_version: str = constant("batch/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: Any = None
    status: Any = None
