"""`kubesched simulate --runs` on executors: the same output as in this process."""

import pytest

from kubesched.app.cli.main import main
from kubesched.app.simulated import SimulationSettings, decode, encode, simulate_cell
from kubesched.lab.simulation.trace import Violation


def run(capsys, *words):
    code = main(["simulate", *map(str, words)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "json"])
def test_the_output_does_not_depend_on_the_executor(capsys, tmp_path, form):
    words = ("--faults", "--seed", 5, "--runs", 3, "-o", form)
    here = run(capsys, *words)
    assert run(capsys, *words, "--executor", "local:2", "--results", tmp_path) == here
    assert len(list(tmp_path.iterdir())) == 3
    assert run(capsys, *words, "--results", tmp_path) == here


def test_results_survive_their_json_form():
    outcome = decode(simulate_cell(SimulationSettings(faults=False), 3))
    assert decode(encode(outcome)) == outcome
    broken = type(outcome)(
        **{name: getattr(outcome, name) for name in outcome.__slots__ if name != "violation"},
        violation=Violation("a property", "why"),
    )
    again = decode(encode(broken))
    assert (again.violation.property, again.violation.detail) == ("a property", "why")


def test_a_run_that_breaks_is_reported_with_its_seed(capsys, monkeypatch):
    def breaking(settings, seed):
        if seed == 2:
            raise ValueError("defect")
        return simulate_cell(settings, seed)

    monkeypatch.setattr("kubesched.app.simulated.simulate_cell", breaking)
    monkeypatch.setattr("kubesched.app.cli.simulate._is_sweep", lambda args: True)
    code, out, err = run(capsys, "--runs", 3)
    assert code == 1
    assert "seed 2: could not be run: ValueError: defect" in err
    assert "seed 1: ok" in out
    assert "seed 3: ok" in out


def test_a_trace_needs_this_process(capsys):
    code, _, err = run(capsys, "--trace", "--executor", "local:2")
    assert code == 2
    assert "--trace" in err
