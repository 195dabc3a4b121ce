"""The page about the playground names everything the server serves, and nothing else."""

from __future__ import annotations

import random
import re
from pathlib import Path

from kubesched.playground.apimachinery.catalog import STORED_ONLY
from kubesched.playground.server.api_server import ApiServer
from tests.unit.playground.conftest import Http

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "playground.md"
NOT_LISTED = {"finalize", "scale", "status"}
"""Subresources that are parts of their object rather than features of their own."""


def rows():
    section = PAGE.read_text(encoding="utf-8").split("## By kind")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", section, re.MULTILINE))


async def served(http):
    """Every resource and subresource, found by walking discovery as a client does."""
    documents = [("", await http.get("/api/v1"))]
    for group in (await http.get("/apis"))["groups"]:
        for version in group["versions"]:
            document = await http.get(f"/apis/{version['groupVersion']}")
            documents.append((group["name"], document))
    names = set()
    for group, document in documents:
        for resource in document["resources"]:
            plural, _, subresource = resource["name"].partition("/")
            if subresource in NOT_LISTED:
                continue
            name = f"{plural}.{group}" if group else plural
            names.add(f"{name}/{subresource}" if subresource else name)
    return names


async def test_the_page_lists_what_is_served(group_api, clock):
    server = ApiServer(group_api.registry, clock=clock, rng=random.Random(7), token="secret")
    assert set(rows()) == await served(Http(server))


def test_the_page_says_which_kinds_nothing_acts_on():
    assert {
        name for name, text in rows().items() if text == "Stored, nothing acts on it."
    } == STORED_ONLY


def test_every_row_says_something():
    assert [name for name, text in rows().items() if len(text) < 10] == []
