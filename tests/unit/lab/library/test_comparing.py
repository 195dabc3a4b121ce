"""Configurations compared on a trace, from Python."""

from __future__ import annotations

import pytest

import kubesched as ks
from kubesched.framework import ScorePlugin
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
    with pytest.raises(ks.InputError, match="1 to 26 configurations are needed"):
        ks.compare([], TRACE)
    with pytest.raises(ks.InputError, match="1 to 26 configurations are needed"):
        ks.compare("my.yaml", TRACE)  # type: ignore[arg-type]
    with pytest.raises(ks.KubeschedError, match="a sample trace has at least one node"):
        ks.sample_trace(nodes="10")  # type: ignore[arg-type]
    with pytest.raises(ks.KubeschedError, match="no-such-file"):
        ks.compare([None], "no-such-file")
    with pytest.raises(ks.KubeschedError, match="Unheard"):
        ks.compare([UNHEARD], TRACE)


def test_each_seed_may_have_its_own_trace() -> None:
    made = {seed: ks.sample_trace(nodes=6, pods=20 + seed, hours=1, seed=seed) for seed in (7, 9)}
    compared = ks.compare([None], made.__getitem__, seeds=[7, 9])
    assert [(cell.seed, cell.submitted) for cell in compared.report.cells] == [(7, 27), (9, 29)]


@pytest.mark.parametrize("seeds", [0, [], [1, 1], "12"])
def test_seeds_that_are_none_are_refused(seeds: object) -> None:
    with pytest.raises(ks.InputError, match=r"seeds .*: a number from 1 on"):
        ks.compare([None], TRACE, seeds=seeds)  # type: ignore[arg-type]


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ks.InputError, match="executor 'x' is none of local"):
        ks.compare([None], TRACE, executor="x")
    with pytest.raises(ks.InputError, match="trace: None is no trace"):
        ks.compare([None], None)  # type: ignore[arg-type]
    with pytest.raises(ks.KubeschedError, match="'x' is no class that derives from Plugin"):
        ks.compare([None], TRACE, plugins=["x"])  # type: ignore[list-item]


def test_a_plugin_that_raises_is_in_the_notes() -> None:
    def fails(*_: object) -> None:
        raise LookupError("no such rack")

    raises = type("Unheard", (ScorePlugin,), {"name": "Unheard", "score": fails})
    trace = ks.sample_trace(nodes=3, pods=4, hours=1)
    (note,) = ks.compare([UNHEARD], trace, plugins=[raises]).report.notes
    assert note.startswith("A: attempts of 4 pods failed, such as trace/job-00000-0: running Score")
    assert "LookupError: no such rack" in note
