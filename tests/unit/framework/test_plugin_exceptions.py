"""Exceptions of plugins: type and text reach the pod, the traceback reaches the log, once for each
place that raises.
"""

from __future__ import annotations

import logging

import numpy as np
import pytest

from kubesched.base.errors import KubeschedError, describe
from kubesched.framework.engine import InTreePlugin
from kubesched.framework.interfaces import ScorePlugin
from kubesched.framework.runtime import guard


class Author(ScorePlugin):
    name = "Author"


class InTree(ScorePlugin, InTreePlugin):
    name = "InTree"


@pytest.fixture(autouse=True)
def nothing_logged_yet(monkeypatch):
    monkeypatch.setattr(guard, "_logged", set())


def caught(raising):
    try:
        raising()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def broken_lookup():
    return {}["rack"]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(KeyError("rack"), "KeyError: 'rack'", id="a text that says little by itself"),
        pytest.param(RuntimeError(), "RuntimeError", id="no text"),
        pytest.param(KubeschedError("no such claim"), "no such claim", id="one of ours"),
        pytest.param(guard.WrongAnswer("X returned int"), "X returned int", id="a wrong answer"),
    ],
)
def test_the_status_names_the_exception(error, text):
    status = guard.raised('running "X" filter plugin: ', error, plugin="X")
    assert status.message == f'running "X" filter plugin: {text}'
    assert describe(error) == text


def test_the_traceback_is_logged_once_for_each_place(caplog):
    caplog.set_level(logging.INFO)
    for _ in range(3):
        guard.raised('running "X" filter plugin: ', caught(broken_lookup), plugin="X")
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert "in broken_lookup" in str(record.__dict__)

    guard.raised("", caught(lambda: 1 // 0))
    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    ("plugin", "given", "kept"),
    [
        (Author(None, None), np.int8, np.int64),
        (Author(None, None), np.int16, np.int64),
        (Author(None, None), np.uint16, np.int64),
        (Author(None, None), np.int32, np.int64),
        (InTree(None, None), np.int32, np.int32),
        (InTree(None, None), np.int16, np.int64),
        (Author(None, None), np.int64, np.int64),
    ],
)
def test_raw_scores_of_authors_have_64_bits(plugin, given, kept):
    scores = guard.checked_scores(plugin, np.array([1, 2], dtype=given), 2)
    assert scores.dtype == kept
    assert scores.tolist() == [1, 2]


def test_what_is_remembered_is_bounded(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(guard, "MAX_LOGGED", 1)
    guard.raised("", caught(broken_lookup))
    guard.raised("", caught(lambda: 1 // 0))
    assert len(caplog.records) == 1


def test_our_own_errors_are_not_logged_with_a_traceback(caplog):
    caplog.set_level(logging.INFO)
    guard.raised("", KubeschedError("no such claim"))
    assert caplog.records == []
