"""The generator of mutants: each is one change, the same for the same number, and compiles."""

from __future__ import annotations

import ast

import pytest
from mechanical_mutants import PACKAGE, draw


@pytest.mark.parametrize("number", range(1, 6))
def test_a_mutant_is_one_change_that_compiles(number: int) -> None:
    made = draw(number)
    assert made == draw(number)
    compile(made.source, made.path, "exec")
    before = ast.unparse(ast.parse((PACKAGE / made.path).read_text())).splitlines()
    after = made.source.splitlines()
    assert len(before) == len(after) or "drop" in made.what
    assert 1 <= len(set(before) ^ set(after)) <= 4


def test_different_numbers_give_different_mutants() -> None:
    assert len({draw(number) for number in range(1, 6)}) == 5
