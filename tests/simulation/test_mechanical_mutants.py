"""Mutants by a generator are one change each, the same for the same number; a sample is caught."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from mechanical_mutants import AREAS, PACKAGE, _function, _parsed, draw, table

AREA = {"informers": AREAS["informers"]}
"""The smallest, since drawing reads all of its modules."""
SAMPLE = (
    ("scheduler/cache/cache.py", "drop", "self._delete(known)", 1),
    (
        "plugins/node_resources/strategies.py",
        "swap arguments",
        "int64.quotients((capacity - requested) * MAX_NODE_SCORE, capacity)",
        3,
    ),
)
"""Path, kind, code, and a seed that fails: by a promise, and by the scalar twins alone."""
RUN = """
import json, sys
from mechanical_mutants import at, first_failing, in_child, replace_code

def run(mutant, seed):
    replace_code(mutant)
    return first_failing([seed])

sample = json.loads(sys.argv[1])
told = [in_child(lambda: run(at(*place), seed), 60) for *place, seed in sample]
print(json.dumps(told))
"""


@pytest.mark.parametrize("number", range(1, 6))
def test_a_mutant_is_one_changed_function(number: int) -> None:
    made = draw(number, AREA)
    assert made == draw(number, AREA)
    original = _parsed(made.path)[1]
    known = _function(original, (made.code.co_name, made.code.co_firstlineno))
    assert made.function == known.co_qualname
    assert made.code != known
    first, last = made.lines
    assert (
        known.co_firstlineno <= first <= last <= len((PACKAGE / made.path).read_text().splitlines())
    )


def test_different_numbers_give_different_mutants() -> None:
    assert len({draw(number, AREA) for number in range(1, 6)}) == 5


def test_a_sample_is_caught() -> None:
    """In a process of its own, which forks: other tests may have started threads."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(SAMPLE)],
        capture_output=True,
        check=True,
        cwd=Path(__file__).parents[1] / "shared",
    )
    told = json.loads(done.stdout)
    assert [code for code, _failed in told] == [0, 0]
    assert [failed and failed[0] for _code, failed in told] == [1, 3]
    assert told[1][1][1] == "the scalar twins decide otherwise"


def test_the_table_counts_by_area_kind_and_package() -> None:
    one = {"area": "informers", "kind": "drop", "path": "client/informers/store.py"}
    results = [
        one | {"simulation": "killed", "unit": "survived"},
        one | {"simulation": "not reached", "unit": "survived"},
    ]
    lines = table(results).splitlines()
    assert lines[2] == "| all | 2 | 1 | 0 | 1 | 1 | 1 |"
    assert [line.split(" | ")[0] for line in lines[3:]] == [
        "| area informers",
        "| in client/informers",
        "| kind drop",
    ]
