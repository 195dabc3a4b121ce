"""The lock files hold every dependency with a version that fits and hashes, and name no package
index.
"""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
FILES = ("constraints.txt", "constraints-build.txt", "constraints-dev.txt")
METADATA = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = METADATA["project"]
EXTRAS = [each for extra in PROJECT["optional-dependencies"].values() for each in extra]


def locked(name):
    """Package -> pinned requirement, and the number of its hashes, by logical line."""
    text = re.sub(r"^#.*$", "", (ROOT / name).read_text(), flags=re.M).replace("\\\n", " ")
    entries = []
    for line in filter(None, map(str.strip, text.splitlines())):
        pinned, *hashes = re.split(r"\s+--hash=", line)
        entries.append((Requirement(pinned.strip()), hashes))
    return entries


@pytest.mark.parametrize("name", FILES)
def test_every_package_has_a_version_and_hashes(name):
    entries = locked(name)
    assert entries
    for requirement, hashes in entries:
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier)), requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", value) for value in hashes), requirement


@pytest.mark.parametrize("name", FILES)
def test_no_index_is_named(name):
    text = (ROOT / name).read_text()
    assert not re.search(r"://|--index|--find-links|--extra-index", text)


@pytest.mark.parametrize(
    ("name", "requirements"),
    [
        ("constraints.txt", PROJECT["dependencies"]),
        ("constraints-build.txt", METADATA["build-system"]["requires"]),
        (
            "constraints-dev.txt",
            PROJECT["dependencies"] + EXTRAS + METADATA["dependency-groups"]["dev"],
        ),
    ],
)
def test_every_dependency_is_locked_at_a_version_that_fits(name, requirements):
    pins = {canonicalize_name(r.name): r for r, _hashes in locked(name)}
    for requirement in map(Requirement, requirements):
        pin = pins.get(canonicalize_name(requirement.name))
        assert pin is not None, f"{requirement.name} is not in {name}: run scripts/lock"
        (version,) = (specifier.version for specifier in pin.specifier)
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement}: {pin}"


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-build.txt"])
def test_locks_that_are_installed_together_agree(name):
    dev = {(r.name, str(r.marker)): r for r, _hashes in locked("constraints-dev.txt")}
    for requirement, _hashes in locked(name):
        other = dev.get((requirement.name, str(requirement.marker)), requirement)
        assert other.specifier == requirement.specifier


def test_the_supported_pythons_are_those_that_are_tested():
    prefix = "Programming Language :: Python :: "
    named = [
        each.removeprefix(prefix) for each in PROJECT["classifiers"] if each.startswith(prefix)
    ]
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    (matrix,) = re.findall(r"python: \[(.*)\]", workflow)
    assert re.findall(r"[\d.]+", matrix) == named
    assert f"On Linux with Python {named[0]} to {named[-1]}" in (ROOT / "README.md").read_text()
    (searched,) = re.findall(
        r"for candidate in (.*);", (ROOT / "scripts" / "environment").read_text()
    )
    assert re.findall(r"python(3\.\d+)", searched) == named
