"""The version flags: what they mean, and kube-scheduler's texts when they are wrong."""

from __future__ import annotations

import pytest

from kubesched.base.errors import ConfigError
from kubesched.config.features import from_flags
from kubesched.config.references import DEFAULT_REFERENCE, REFERENCES
from kubesched.config.versions import Versions, parse_versions


@pytest.mark.parametrize(
    ("given", "emulated", "oldest"),
    [
        pytest.param((), "1.37", "1.36", id="nothing given"),
        pytest.param((["1.36"],), "1.36", "1.35", id="plainly"),
        pytest.param((["kube=1.36"],), "1.36", "1.35", id="for the component"),
        pytest.param(([" kube = v1.36.0 "],), "1.36", "1.35", id="with a v, spaces and patch 0"),
        pytest.param((["1.34"],), "1.34", "1.34", id="nothing below the oldest"),
        pytest.param(([], ["1.37"]), "1.37", "1.37", id="all components are new"),
        pytest.param((["1.36"], ["1.34"]), "1.36", "1.34", id="both"),
    ],
)
def test_flags_choose_versions(given, emulated, oldest):
    versions = parse_versions("", *given)
    assert versions.reference is DEFAULT_REFERENCE
    assert (versions.emulated, versions.min_compatibility) == (emulated, oldest)
    assert list(versions.range_problems()) == []


def test_a_reference_has_its_own_range():
    versions = parse_versions("1.36", ["1.33"])
    assert versions.reference is REFERENCES["1.36"]
    assert (versions.emulated, versions.min_compatibility) == ("1.33", "1.33")
    assert list(versions.range_problems()) == []


@pytest.mark.parametrize(
    ("emulated", "oldest", "message"),
    [
        ("abc", "", 'could not parse "abc" as version'),
        ("1", "", 'illegal version string "1"'),
        ("1.36.1", "", "patch version not allowed, got: kube=1.36.1"),
        ("kube=1.36,kube=1.35", "", "duplicate version flag, kube=1.36 and kube=1.35"),
        ("wardle=1.36", "", "component not registered: wardle"),
        (
            "1.33",
            "",
            "emulation version 1.33 is not between [1.34, 1.37.0], "
            "minCompatibilityVersion version 1.34 is not between [1.34, 1.33]",
        ),
        ("1.38", "", "emulation version 1.38 is not between [1.34, 1.37.0]"),
        ("2.36", "", "emulation version 2.36 is not between [1.34, 1.37.0]"),
        ("1.36", "1.37", "minCompatibilityVersion version 1.37 is not between [1.34, 1.36]"),
        ("", "1.33", "minCompatibilityVersion version 1.33 is not between [1.34, 1.37]"),
        ("", "x", 'could not parse "x" as version'),
    ],
)
def test_wrong_versions_are_refused_with_upstream_texts(emulated, oldest, message):
    """Each text was printed by kube-scheduler 1.37."""
    with pytest.raises(ConfigError) as caught:
        from_flags("", "", emulated.split(",") * bool(emulated), [oldest] * bool(oldest))
    assert ", ".join(problem.message for problem in caught.value.problems) == message


def test_gates_are_checked_before_ranges():
    with pytest.raises(ConfigError) as caught:
        from_flags("DRAExtendedResource=true", "", ["1.33"])
    assert [problem.message for problem in caught.value.problems] == [
        "cannot set feature gate DRAExtendedResource to true, feature is PreAlpha at emulated "
        "version 1.33, min compatibility version 1.34"
    ]


def test_an_unknown_reference_is_refused():
    with pytest.raises(ConfigError, match=r'"1.20" is not one of the known releases: 1.36, 1.37'):
        parse_versions("1.20")


@pytest.mark.parametrize(
    ("versions", "text"),
    [
        (Versions(), "1.37"),
        (Versions(REFERENCES["1.36"]), "1.36"),
        (Versions(emulated="1.36"), "1.37, emulating 1.36"),
        (Versions(min_compatibility="1.37"), "1.37, emulating 1.37, compatible with 1.37"),
    ],
)
def test_versions_are_shown_where_they_are_unusual(versions, text):
    assert str(versions) == text
