"""Workflow files and hooks: they load, name no secret, and call what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from kubesched.app.cli.main import parser_of

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(path):
    document = yaml.safe_load(path.read_text())
    return [step for job in document["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_name_no_secret_and_call_what_is_there(path):
    text = path.read_text()
    assert "secrets." not in text
    document = yaml.safe_load(text)
    assert document["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] for job in document["jobs"].values())
    commands = "\n".join(step.get("run", "") for step in steps(path))
    for script in re.findall(r"\bscripts/\w+", commands):
        assert (ROOT / script).exists(), script
    for file in re.findall(r"\b(?:deploy/\w+|constraints[\w-]*\.txt|CHANGELOG\.md)", commands):
        assert (ROOT / file).exists(), file
    for words in re.findall(r"bin/kubesched (.*)", commands):
        parser_of().parse_args(words.split())


def test_every_supported_python_is_tested():
    document = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    tested = set(document["jobs"]["test"]["strategy"]["matrix"]["python"])
    classifiers = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert set(classifiers) <= tested


def test_hooks_run_the_tools_of_scripts_check():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook["entry"].split()[0] for repo in config["repos"] for hook in repo["hooks"]]
    check = (ROOT / "scripts" / "check").read_text()
    for hook in hooks:
        assert Path(hook).name in check


@pytest.mark.parametrize("name", ["bug.yml", "feature.yml"])
def test_issue_forms_have_what_a_form_needs(name):
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / name).read_text())
    assert {"name", "description", "body"} <= set(form)
    ids = [field["id"] for field in form["body"] if "id" in field]
    assert len(set(ids)) == len(ids)
