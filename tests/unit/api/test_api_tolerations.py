"""Which toleration covers which taint."""

from __future__ import annotations

import pytest

from kubesched.api.core_v1 import Taint, Toleration
from kubesched.api.tolerations import (
    PREFER_NO_SCHEDULE,
    first_untolerated_taint,
    is_tolerated,
    tolerates,
)


def taint(key="d", value="u1", effect="NoSchedule"):
    return Taint(key=key, value=value, effect=effect)


@pytest.mark.parametrize(
    ("toleration", "marked", "covered"),
    [
        pytest.param(
            Toleration(key="d", operator="Equal", value="u1", effect="NoSchedule"),
            taint(),
            True,
            id="equal",
        ),
        pytest.param(Toleration(key="d", value="u1"), taint(), True, id="no operator means Equal"),
        pytest.param(
            Toleration(key="d", operator="Equal", value="u1"),
            taint(value="u2"),
            False,
            id="another value",
        ),
        pytest.param(Toleration(key="e", operator="Exists"), taint(), False, id="another key"),
        pytest.param(
            Toleration(key="d", operator="Exists"), taint(), True, id="Exists takes any value"
        ),
        pytest.param(
            Toleration(key="d", operator="Exists", value="x"),
            taint(),
            True,
            id="Exists ignores its value",
        ),
        pytest.param(
            Toleration(operator="Exists"), taint(), True, id="Exists without key takes all"
        ),
        pytest.param(
            Toleration(key="d", operator="Exists"),
            taint(effect="NoExecute"),
            True,
            id="no effect means every effect",
        ),
        pytest.param(
            Toleration(key="d", operator="Exists", effect="NoExecute"),
            taint(),
            False,
            id="another effect",
        ),
        pytest.param(
            Toleration(key="d", value="u1", effect="PreferNoSchedule"),
            taint(),
            False,
            id="a preference is not enough",
        ),
        pytest.param(
            Toleration(operator="Equal"),
            taint(value=""),
            True,
            id="Equal without key takes valueless taints",
        ),
        pytest.param(Toleration(operator="Equal"), taint(), False, id="but no others"),
        pytest.param(
            Toleration(key="d", operator="Like", value="u1"),
            taint(),
            False,
            id="an unknown operator",
        ),
        pytest.param(
            Toleration(key="d", value="u1", effect="NoExecute", toleration_seconds=0),
            taint(effect="NoExecute"),
            True,
            id="the time limit does not matter here",
        ),
    ],
)
def test_tolerates(toleration, marked, covered):
    assert tolerates(toleration, marked) is covered


@pytest.mark.parametrize(
    ("operator", "bound", "value", "covered"),
    [
        pytest.param("Gt", "500", "501", True, id="greater"),
        pytest.param("Gt", "500", "500", False, id="equal is not greater"),
        pytest.param("Gt", "500", "0501", False, id="leading zeros are no number"),
        pytest.param("Gt", "500", "+501", False, id="a plus sign is no number"),
        pytest.param("Gt", "500", "", False, id="nothing is no number"),
        pytest.param("Gt", "500", " 501", False, id="space is no number"),
        pytest.param("Gt", "-0", "5", False, id="minus zero is no number"),
        pytest.param("Lt", "-3", "-4", True, id="smaller"),
        pytest.param("Lt", "-3", "-3", False, id="equal is not smaller"),
        pytest.param(
            "Gt", "-9223372036854775808", "9223372036854775807", True, id="the ends of int64"
        ),
        pytest.param("Gt", "0", "9223372036854775808", False, id="past int64"),
    ],
)
def test_comparisons_need_their_gate(operator, bound, value, covered):
    toleration = Toleration(key="d", operator=operator, value=bound)
    assert tolerates(toleration, taint(value=value), comparison_operators=True) is covered
    assert not tolerates(toleration, taint(value=value))


def test_every_taint_needs_some_toleration():
    tolerations = [
        Toleration(key="a", operator="Exists"),
        Toleration(key="n", operator="Gt", value="5"),
    ]
    taints = [
        taint("a"),
        taint("n", "7"),
        taint("soft", effect=PREFER_NO_SCHEDULE),
        taint("x", effect="Odd"),
    ]
    assert first_untolerated_taint(taints, tolerations) == taints[1]
    assert first_untolerated_taint(taints, tolerations, comparison_operators=True) is None
    assert first_untolerated_taint(taints, None) == taints[0]
    assert first_untolerated_taint(None, None) is None
    assert first_untolerated_taint(taints, tolerations, (PREFER_NO_SCHEDULE,)) == taints[2]


def test_mixed_tolerations_work_without_the_gate():
    tolerations = [Toleration(key="d", operator="Gt", value="1"), Toleration(key="d", value="u1")]
    assert is_tolerated(taint(), tolerations)
    assert not is_tolerated(taint(value="5"), tolerations)
    assert not is_tolerated(taint(), None)
