"""Events of pod updates: the shortcut for unchanged requests equals the full comparison."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubesched.api import codec
from kubesched.api.core_v1 import Pod
from kubesched.api.resources import ACCOUNTED, request_amounts
from kubesched.scheduler.change_events import scaled

LISTS = st.none() | st.dictionaries(
    st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", "2", "1000m"]), max_size=2
)


@st.composite
def raw_statuses(draw: st.DrawFn, name: str) -> dict[str, Any]:
    status: dict[str, Any] = {"name": name, "ready": draw(st.booleans())}
    if (resources := draw(LISTS)) is not None:
        status["resources"] = {"requests": resources}
    if (allocated := draw(LISTS)) is not None:
        status["allocatedResources"] = allocated
    return status


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    status: dict[str, Any] = {
        "conditions": draw(
            st.lists(
                st.sampled_from(
                    [
                        {"type": "Ready", "status": "True"},
                        {"type": "PodResizePending", "status": "True", "reason": "Infeasible"},
                        {"type": "PodResizePending", "status": "True", "reason": "Deferred"},
                    ]
                ),
                max_size=2,
            )
        ),
        "containerStatuses": [draw(raw_statuses("main"))] if draw(st.booleans()) else [],
        "initContainerStatuses": [draw(raw_statuses("side"))] if draw(st.booleans()) else [],
    }
    if (resources := draw(LISTS)) is not None:
        status["resources"] = {"requests": resources}
    if (allocated := draw(LISTS)) is not None:
        status["allocatedResources"] = allocated
    spec: dict[str, Any] = {
        "initContainers": [
            {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
        ],
        "containers": [
            {
                "name": "main",
                "resources": {"requests": {"cpu": draw(st.sampled_from(["1", "2"]))}},
            }
        ],
    }
    if draw(st.booleans()):
        spec["resources"] = {"requests": {"cpu": "3"}}
    return codec.convert({"metadata": {"name": "a"}, "spec": spec, "status": status}, Pod)


@given(pods(), pods())
def test_a_scaled_pod_has_a_request_that_shrank_or_grew(old: Pod, new: Pod) -> None:
    before, after = request_amounts(old, ACCOUNTED), request_amounts(new, ACCOUNTED)
    shrank = any(after.get(name, -1) < amount for name, amount in before.items())
    grew = any(before.get(name, -1) < amount for name, amount in after.items())
    assert scaled(old, new) == (shrank, grew)
