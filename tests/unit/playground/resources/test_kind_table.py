"""Nothing about a kind is forgotten or left over: schema, strategies, columns and field selectors
follow the kind table.

The steps are the checklist "Adding an API kind" in CONTRIBUTING.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kubesched.api.kinds import KINDS
from kubesched.playground.apimachinery import selectors
from kubesched.playground.apimachinery.catalog import BUILT_IN, ResourceCatalog, served
from kubesched.playground.apimachinery.schema.table import type_of_kind
from kubesched.playground.handlers.openapi.schemas import descriptions
from kubesched.playground.handlers.tables.columns import COLUMNS
from kubesched.playground.resources.strategies import STRATEGIES
from tests.unit.playground.conftest import POD_GROUP_GATES

ROOT = Path(__file__).parents[4]
RESOURCES = served(POD_GROUP_GATES)
CATALOG = ResourceCatalog(RESOURCES)
SERVED = [kind for kind in KINDS if CATALOG.find(kind.group, kind.version, kind.plural) is not None]
STORED = {resource.storage_key for resource in RESOURCES if resource.is_stored}


def named(kind):
    return f"{kind.api_version} {kind.kind}"


@pytest.mark.parametrize("kind", SERVED, ids=named)
def test_a_served_kind_has_a_schema(kind):
    assert type_of_kind(kind.group, kind.kind) is not None, "missing in resources/schema/types.txt"


@pytest.mark.parametrize("kind", SERVED, ids=named)
def test_a_served_kind_is_explained(kind):
    explained = type_of_kind(kind.group, kind.kind)
    assert explained is not None
    assert explained.name in descriptions(), "missing in resources/schema/descriptions.txt"


@pytest.mark.parametrize("kind", SERVED, ids=named)
def test_a_served_kind_is_in_the_catalogue(kind):
    resource = CATALOG.find(kind.group, kind.version, kind.plural)
    assert resource is not None
    if not kind.is_preview:
        assert resource in BUILT_IN
    assert (resource.kind, resource.namespaced, resource.subresources) == (
        kind.kind,
        kind.namespaced,
        kind.subresources,
    )


@pytest.mark.parametrize(
    ("table", "resources"),
    [
        pytest.param("resources/strategies.py", STRATEGIES, id="strategies"),
        pytest.param("handlers/tables/columns.txt", COLUMNS, id="columns"),
    ],
)
def test_tables_by_kind_name_stored_kinds_only(table, resources):
    assert set(resources) - STORED == set(), f"{table} names what is not stored"


def test_field_selectors_name_served_kinds_only():
    assert set(selectors.FIELDS) - {resource.key for resource in BUILT_IN} == set()


def test_the_checklist_names_the_files_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.split("### Adding an API kind")[1].split("\n#")[0]
    paths = re.findall(r"`((?:src|tests)/[^`]+)`", section)
    assert len(paths) >= 6
    assert [path for path in paths if not (ROOT / path).exists()] == []
