"""Configurations compared on a trace, from Python."""

from __future__ import annotations

import pytest

import kubesched as ks
from kubesched.lab.traces.trace import TraceError

PACKING = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
"""
UNHEARD = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {score: {enabled: [{name: Unheard}]}}
"""
TRACE = ks.sample_trace(nodes=12, pods=80, hours=2)


def test_a_sample_is_the_same_for_the_same_seed() -> None:
    again = ks.sample_trace(nodes=12, pods=80, hours=2)
    assert (again.digest, again.events) == (TRACE.digest, TRACE.events)
    other = ks.sample_trace(nodes=12, pods=80, hours=2, seed=1)
    assert other.digest != TRACE.digest
    assert other.events != TRACE.events
    assert len(TRACE.arrivals) == 80
    with pytest.raises(TraceError, match="at least one node"):
        ks.sample_trace(nodes=0)


def test_differences_are_paired_by_seed() -> None:
    compared = ks.compare({"default": None, "packing": PACKING}, TRACE, seeds=2)
    figures = {(row["config"], row["figure"]): row["mean"] for row in compared.figures.rows()}
    differences = {row["figure"]: row for row in compared.differences.rows()}
    used = differences["nodesUsed"]
    assert used["mean"] == pytest.approx(
        figures["packing", "nodesUsed"] - figures["default", "nodesUsed"], abs=1e-4
    )
    assert used["low"] is not None
    assert "nodesUsed" in compared._repr_html_()


def test_nothing_to_compare_is_said() -> None:
    with pytest.raises(ks.InputError, match="configurations and a seed are needed"):
        ks.compare([], TRACE)
    with pytest.raises(ks.KubeschedError, match="no-such-file"):
        ks.compare([None], "no-such-file")
    with pytest.raises(ks.KubeschedError, match="Unheard"):
        ks.compare([UNHEARD], TRACE)
