"""`kubesched.framework` is the plugin author's one import, and its list of names is the documented
one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import kubesched.framework as contract
import kubesched.framework.api as records

ROOT = Path(__file__).parents[3]


def test_every_listed_name_exists_and_no_other_is_public() -> None:
    public = {name for name in vars(contract) if not name.startswith("_")}
    modules = {name for name in public if type(vars(contract)[name]).__name__ == "module"}
    assert public - modules == set(contract.__all__)
    assert contract.__all__ == sorted(contract.__all__, key=lambda name: (not name.isupper(), name))


def test_the_reference_page_says_what_the_docstrings_say() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/plugin-reference", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_the_contract_has_upstreams_methods_and_one_rule_per_phase() -> None:
    """A method that is neither upstream's, nor a column form, nor a rule, is a change of the
    contract.
    """
    beyond_upstream = {
        "Plugin": {"class_fields", "close", "kinds_to_list"},
        "QueueSortPlugin": {"sort_key"},
        "PreFilterPlugin": {"filter_rule"},
        "FilterPlugin": {"filter_nodes", "filter_rule"},
        "PreScorePlugin": {"score_rule"},
        "ScorePlugin": {"score_nodes", "score_rule"},
    }
    upstream = {
        "QueueSortPlugin": {"less"},
        "PreEnqueuePlugin": {"pre_enqueue"},
        "EnqueueExtensions": {"events_to_register"},
        "PreFilterPlugin": {"pre_filter", "add_pod", "remove_pod"},
        "FilterPlugin": {"filter"},
        "PostFilterPlugin": {"post_filter"},
        "PreScorePlugin": {"pre_score"},
        "ScorePlugin": {"score", "normalize_scores"},
        "ReservePlugin": {"reserve", "unreserve"},
        "PermitPlugin": {"permit"},
        "PreBindPlugin": {"pre_bind_pre_flight", "pre_bind"},
        "BindPlugin": {"bind"},
        "PostBindPlugin": {"post_bind"},
        "SignPlugin": {"sign_pod"},
    }
    inherited = beyond_upstream["Plugin"]
    for name in upstream:
        point = getattr(contract, name)
        methods = {m for m in dir(point) if callable(getattr(point, m)) and not m.startswith("_")}
        assert methods - inherited == upstream[name] | beyond_upstream.get(name, set()), name


def test_readme_and_guide_import_the_contract_from_one_place() -> None:
    for page in ("README.md", "docs/how-to/write-a-plugin.md"):
        modules = set(
            re.findall(r"from (kubesched\.framework[\w.]*) import", (ROOT / page).read_text())
        )
        assert modules - {"kubesched.framework.api"} == {"kubesched.framework"}, page


def test_the_contract_is_small() -> None:
    assert len(contract.__all__) <= 45
    about_reuse = {f"Rule.{name}" for name in dir(contract.Rule) if not name.startswith("_")}
    about_reuse |= {"filter_rule", "score_rule", "class_fields"}
    assert len(about_reuse) <= 5
    registration = {field.name for field in fields(contract.ClusterEventWithHint)}
    assert registration == {"event", "hint", "narrow"}


def test_the_records_of_the_contract_are_those_of_the_api() -> None:
    assert records.__all__ == sorted(records.__all__, key=lambda name: (not name.isupper(), name))
    for name in records.__all__:
        assert getattr(records, name).__module__.startswith("kubesched.api."), name
