"""Processor time and memory as /proc tells them: odd program names, processes that are gone, time
before a stretch.
"""

import os

import pytest

from kubesched.base.clock import ManualClock, SystemClock
from kubesched.base.errors import KubeschedError
from kubesched.lab.benchmarking.end_to_end.measuring import MACHINE, UsageLog
from kubesched.lab.benchmarking.end_to_end.usage import (
    Usage,
    parse_machine,
    parse_stat,
    read_machine,
    read_usage,
)

AFTER_NAME = (
    "S 1 42 42 0 -1 4194560 2000 0 3 0 250 50 0 0 20 0 9 0 1234 700000000 5000 18446744073709551615"
)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("etcd", id="a plain name"),
        pytest.param("kube) S 9 9 (apiserver", id="a name with brackets, spaces and numbers"),
        pytest.param("", id="no name"),
    ],
)
def test_times_and_memory_are_found_behind_any_name(name):
    usage = parse_stat(f"77 ({name}) {AFTER_NAME}")
    ticks_per_s, page_bytes = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    assert usage == Usage(cpu_s=300 / ticks_per_s, resident_bytes=5000 * page_bytes)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("77 (etcd) S 1 42", id="too short"),
        pytest.param(f"77 (etcd) {AFTER_NAME.replace('250', 'many')}", id="no number"),
    ],
)
def test_what_is_no_account_is_refused(text):
    with pytest.raises(KubeschedError, match="not a process's account"):
        parse_stat(text)


def test_this_process_has_used_time_and_memory():
    before = read_usage(os.getpid())
    assert before.resident_bytes > 1 << 20
    deadline = SystemClock().monotonic() + 30
    while read_usage(os.getpid()).cpu_s == before.cpu_s:
        assert SystemClock().monotonic() < deadline, "time goes by"
    assert read_machine().cpu_s > 0


def test_a_process_that_is_gone_is_named(tmp_path):
    with pytest.raises(KubeschedError, match="process 77"):
        read_usage(77, tmp_path)
    with pytest.raises(KubeschedError, match="the machine"):
        read_machine(tmp_path)


def test_the_machine_is_busy_when_it_neither_idles_nor_waits():
    line = "cpu  100 10 40 90000 800 3 2 7 1 0"
    assert parse_machine(line).cpu_s == pytest.approx(155 / os.sysconf("SC_CLK_TCK"))
    for wrong in ("cpu0 1 2 3 4 5 6 7", "cpu 1 2", "intr a b c d e f g"):
        with pytest.raises(KubeschedError):
            parse_machine(wrong)


def test_a_log_counts_from_the_last_account_before_a_moment():
    log = UsageLog(ManualClock(), {})
    log.moments = [10.0, 20.0, 30.0]
    log.accounts = [
        {"scheduler": Usage(1.0, 50), MACHINE: Usage(100.0, 0)},
        {"scheduler": Usage(3.0, 90), MACHINE: Usage(110.0, 0)},
        {"scheduler": Usage(7.0, 70), "late": Usage(2.0, 5), MACHINE: Usage(130.0, 0)},
    ]
    assert log.cpu_s(25.0) == {"scheduler": 4.0, "late": 2.0, MACHINE: 20.0}
    assert log.cpu_s(10.0)["scheduler"] == 6.0
    assert log.cpu_s(1.0)["scheduler"] == 6.0, "earlier than all accounts: the first one"
    assert log.peak_bytes() == {"scheduler": 90, "late": 5, MACHINE: 0}
