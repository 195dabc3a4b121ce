"""Results: percentiles, JSON and back, summaries, ratios."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from kubesched.lab.benchmarking import summary
from kubesched.lab.benchmarking.results import (
    DecisionCpu,
    Environment,
    Mode,
    ProcessUse,
    Refusal,
    Report,
    RunResult,
    encode,
    percentiles,
    this_environment,
)

ENVIRONMENT = Environment(
    kubesched="1", python="3.11", numpy="2", system="Linux", machine="x", cores=2
)


def result(workload="Case/one", contestant="kubesched", pods_per_s=100.0, **changes):
    base = RunResult(
        workload=workload,
        contestant=contestant,
        mode=Mode.END_TO_END,
        repeat=1,
        pods=10,
        pods_per_s=pods_per_s,
        scheduler=ProcessUse(cpu_s=1.0, cpu_ms_per_pod=2.0, max_rss_bytes=2**20),
    )
    return structs.replace(base, **changes)


# -- numbers ---------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1e9), min_size=1))
def test_percentiles_are_values_that_occurred_in_order(values):
    actual = percentiles(values)
    assert {actual.p50, actual.p90, actual.p95, actual.p99} <= set(values)
    assert actual.p50 <= actual.p90 <= actual.p95 <= actual.p99 <= max(values)


def test_percentiles_of_a_hundred_values_are_what_one_expects():
    actual = percentiles(range(1, 101))
    assert (actual.p50, actual.p90, actual.p95, actual.p99) == (50, 90, 95, 99)
    assert actual.mean == 50.5


def test_nothing_has_no_percentiles():
    assert percentiles([]) is None


# -- JSON ------------------------------------------------------------------------------------------


def test_a_report_survives_being_written_and_read():
    refused = (Refusal(workload="Case/two", reason="not supported: x"),)
    report = Report(environment=ENVIRONMENT, results=(result(), result(repeat=2)), refused=refused)
    assert msgspec.json.decode(encode(report), type=Report) == report
    assert b'"schemaVersion": 1' in encode(report)


def test_the_environment_names_versions_and_cores_but_not_the_machine():
    import platform

    actual = this_environment(kube_scheduler="1.36.4")
    assert actual.cores >= 1
    assert actual.kube_scheduler == "1.36.4"
    assert platform.node() not in encode(Report(environment=actual)).decode()


# -- summaries -------------------------------------------------------------------------------------


def test_repetitions_are_summed_up_by_their_median_and_spread():
    (actual,) = summary.summarise(
        [result(pods_per_s=80.0), result(pods_per_s=100.0), result(pods_per_s=140.0)]
    )
    assert actual.pods_per_s == 100.0
    assert actual.spread == pytest.approx(0.3)
    headers, (row,) = summary.table([actual])
    assert row[headers.index("±")] == "30%"


def test_contestants_are_set_beside_kube_scheduler_on_the_same_workload_and_plane():
    theirs = result(
        contestant="kube-scheduler",
        pods_per_s=50.0,
        scheduler=ProcessUse(cpu_s=1, cpu_ms_per_pod=8.0),
    )
    elsewhere = structs.replace(theirs, control_plane="real")
    headers, rows = summary.ratio_table(summary.summarise([result(), theirs, elsewhere]))
    assert headers == ["WORKLOAD", "PODS/S", "CPU/POD"], "what is not known has no column"
    assert rows == [["Case/one", "2.00x", "0.25x"]]


def test_decisions_are_set_beside_each_other_apart_from_all_cpu():
    def decided(us_per_pod, contestant):
        return result(contestant=contestant, decision_cpu=DecisionCpu(us_per_pod=us_per_pod))

    both = summary.summarise([decided(25.0, "kubesched"), decided(1000.0, "kube-scheduler")])
    headers, rows = summary.table(both)
    at = headers.index("DECISION CPU/POD")
    assert [row[at] for row in rows] == ["25.0 µs", "1,000 µs"]
    headers, (row,) = summary.ratio_table(both)
    assert dict(zip(headers, row, strict=True))["DECISION CPU/POD"] == "0.025x"


def test_columns_without_any_value_are_left_out():
    headers, rows = summary.table(summary.summarise([result()]))
    assert "DECISIONS/S" not in headers
    assert rows[0][headers.index("CPU/POD")] == "2.00 ms"
    assert all(len(row) == len(headers) for row in rows)
