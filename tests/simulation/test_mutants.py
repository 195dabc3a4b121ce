"""Planted bugs are still bugs: every patch applies to the sources as they are, and a sample of them
is caught.

`scripts/mutants` runs all of them; which seed catches each is in `docs/reference/simulation.md`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mutants import MAX_SEEDS, PATCHES, ROOT, all_mutants, apply, catch, mutant

WANTED = 30
SAMPLE = {"cache-assumption-kept": 20, "queue-errors-never-retried": 30}
"""Mutants that are caught within so many seeds, with a margin for seeds that come to mean other
runs.
"""
REFERENCE = ROOT / "docs" / "reference" / "simulation.md"


def test_there_are_enough_mutants() -> None:
    assert len(all_mutants()) >= WANTED


@pytest.mark.parametrize("name", [item.name for item in all_mutants()])
def test_a_mutant_applies(name: str, tmp_path: Path) -> None:
    chosen = mutant(name)
    touched = [
        line.removeprefix("--- a/").strip()
        for line in chosen.path.read_text().splitlines()
        if line.startswith("--- a/")
    ]
    for path in touched:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    assert apply(chosen, tmp_path) == ""
    assert touched
    for path in touched:
        mutated = (tmp_path / path).read_text()
        assert mutated != (ROOT / path).read_text()
        compile(mutated, path, "exec")


def test_every_mutant_is_in_the_reference() -> None:
    text = REFERENCE.read_text()
    assert [item.name for item in all_mutants() if f"| `{item.name}` |" not in text] == []


def test_every_promise_a_mutant_breaks_is_in_the_reference() -> None:
    text = REFERENCE.read_text()
    assert [item.name for item in all_mutants() if f"| {item.promise} |" not in text] == []


@pytest.mark.parametrize(("name", "seeds"), SAMPLE.items())
def test_a_sample_is_caught(name: str, seeds: int) -> None:
    assert catch(mutant(name), range(1, seeds + 1)) is not None


def test_patches_are_all_that_is_kept() -> None:
    assert {path.suffix for path in PATCHES.iterdir()} == {".patch"}
    assert max(SAMPLE.values()) < MAX_SEEDS
