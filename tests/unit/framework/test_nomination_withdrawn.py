"""A nomination that is withdrawn leaves the API server even if the watch has not shown it yet."""

from __future__ import annotations

from kubesched.api.core_v1 import PodCondition
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.pod_status import POD_SCHEDULED, status_patch
from kubesched.testing.builders import make_pod

WITHDRAWN = NominatingInfo(override=True, node_name="")
REJECTED = PodCondition(type=POD_SCHEDULED, status="False", reason="Unschedulable", message="no")


def test_a_withdrawal_goes_with_every_patch_that_is_sent() -> None:
    patch = status_patch(make_pod("p").build(), REJECTED, WITHDRAWN, 0.0)
    assert patch is not None
    assert patch["status"]["nominatedNodeName"] is None
    assert "conditions" in patch["status"]


def test_a_withdrawal_alone_is_no_reason_to_write() -> None:
    assert status_patch(make_pod("p").build(), None, WITHDRAWN, 0.0) is None


def test_without_a_word_about_the_nomination_it_stays() -> None:
    patch = status_patch(make_pod("p").build(), REJECTED, None, 0.0)
    assert patch is not None
    assert "nominatedNodeName" not in patch["status"]
