"""Reserve: the first plugin that does not succeed ends it, and its answer keeps its meaning."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.runtime.reserve import run_reserve
from kubesched.framework.status import Code, Status, unresolvable, unschedulable
from kubesched.testing import make_pod


def _run(*answers):
    asked = []

    def plugin(number, answer):
        def reserve(state, pod, node_name):
            asked.append(number)
            return answer

        return SimpleNamespace(name=f"p{number}", reserve=reserve)

    plugins = [plugin(number, answer) for number, answer in enumerate(answers)]
    status = run_reserve(SimpleNamespace(reserve=plugins), CycleState(), make_pod("a").build(), "n")
    return status, asked


@pytest.mark.parametrize("make", [unschedulable, unresolvable])
def test_a_rejection_names_its_plugin_and_asks_no_other(make):
    status, asked = _run(None, make("the claim is taken"), None)
    assert (status.code, status.plugin) == (make("").code, "p1")
    assert list(status.all_reasons) == ["the claim is taken"]
    assert asked == [0, 1]


def test_success_asks_the_next_plugin():
    assert _run(None, Status(Code.SUCCESS), None) == (None, [0, 1, 2])


def test_an_answer_of_another_type_is_an_error():
    status, asked = _run("yes", None)
    assert status.code is Code.ERROR
    assert "p0 returned str where a Status or None was expected" in status.message
    assert asked == [0]
