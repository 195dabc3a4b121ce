"""The checklist "Adding a Kubernetes release" of CONTRIBUTING.md."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from kubesched.app.cli.main import parser_of
from kubesched.config.feature_table import effective, histories
from kubesched.config.features import NOT_IMPLEMENTED, FeatureGates, defaults
from kubesched.config.references import DEFAULT_REFERENCE, REFERENCES
from kubesched.config.versions import Versions, number
from kubesched.playground.apimachinery.releases import RELEASES

ROOT = Path(__file__).parents[3]
DOCS = ("compatibility.md", "configuration.md", "cli.md")


def test_the_newest_reference_is_the_default():
    assert max(REFERENCES, key=number) == DEFAULT_REFERENCE.version
    assert list(REFERENCES) == sorted(REFERENCES, key=number)
    for version, reference in REFERENCES.items():
        assert reference.version == version
        assert reference.release.startswith(f"{version}.")


def test_every_behaviour_differs_between_references():
    names = {field.name for field in fields(DEFAULT_REFERENCE)}
    for name in names:
        values = {getattr(reference, name) for reference in REFERENCES.values()}
        assert len(values) > 1, f"{name} is the same in every reference"


@pytest.mark.parametrize("version", REFERENCES)
def test_the_gates_of_the_release_are_in_the_table(version):
    assert any(entry.version == version for row in histories().values() for entry in row.entries), (
        "no gate changed in this release"
    )
    gates = effective(Versions(REFERENCES[version]))
    assert len(gates) > 200
    assert {name for name, _, _ in defaults(version).states()} == set(gates)


def test_gates_that_are_not_implemented_are_fields():
    assert set(NOT_IMPLEMENTED) <= {field.name for field in fields(FeatureGates)}


@pytest.mark.parametrize("version", REFERENCES)
def test_the_embedded_cluster_can_be_of_the_release(version):
    assert version in RELEASES


@pytest.mark.parametrize("version", REFERENCES)
@pytest.mark.parametrize("page", DOCS)
def test_the_documentation_names_the_release(version, page):
    assert version in (ROOT / "docs/reference" / page).read_text(encoding="utf-8")


def test_every_command_offers_every_reference():
    offered = [
        set(action.choices)
        for node in _walk(parser_of())
        for action in node._actions
        if "--reference-version" in action.option_strings and action.choices
    ]
    assert len(offered) > 5
    assert all(choices == set(REFERENCES) for choices in offered)


def _walk(parser):
    yield parser
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for child in dict.fromkeys(action.choices.values()):
                yield from _walk(child)
