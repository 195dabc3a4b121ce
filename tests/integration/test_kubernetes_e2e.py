"""Upstream's e2e specs against `kubesched up`: each ends as `kubernetes_e2e_specs.txt` expects.

The specs are dealt out to several clusters, which are played at a time: most of their time is
waiting. Without `e2e.test` only the list and the how-to page are looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kubesched.testing.control_plane import ASSETS_VARIABLE

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "run-kubernetes-e2e-tests.md"
LIST = Path(__file__).parent / "kubernetes_e2e_specs.txt"
EXPECTATION = re.compile(r"pass|(?:fail|leave out): \S.+")
GROUP = re.compile(r"\[(sig-[a-z-]+)\] (?:\[(DRA)\] )?")
COMPLETE = re.compile(r"\[sig-(?:api-machinery|apps|auth|cli|scheduling)\]|\[sig-node\] \[DRA\]")
"""Specs that must all be in the list; of the others it has those that need no container."""
CLUSTERS = 4
START_TIMEOUT_S = 120.0
RUN_TIMEOUT_S = 3000.0


def expectations() -> dict[str, str]:
    """What is expected of each spec: `pass`, or `fail` or `leave out` with a reason."""
    found: dict[str, str] = {}
    expected = ""
    for line in LIST.read_text().splitlines():
        if line.startswith("  "):
            assert EXPECTATION.fullmatch(expected), expected
            assert line.strip() not in found, line
            found[line.strip()] = expected
        elif not line.startswith("#"):
            expected = line
    return found


def group_of(spec: str) -> str:
    match = GROUP.match(spec)
    assert match is not None, spec
    return match[2] or match[1]


def groups() -> list[str]:
    return sorted(set(map(group_of, expectations())))


def binary() -> str | None:
    folders = os.pathsep.join(filter(None, [os.environ.get(ASSETS_VARIABLE), os.environ["PATH"]]))
    return shutil.which("e2e.test", path=folders)


def test_the_page_states_the_figures_of_the_list():
    counts = Counter(
        (group_of(spec), expected.partition(":")[0]) for spec, expected in expectations().items()
    )
    rows = re.findall(
        r"^\| `?([^|`]+)`? \| (\d+) \| (\d+) \| (\d+) \|$", PAGE.read_text(), re.MULTILINE
    )
    kinds = ("pass", "fail", "leave out")
    stated = {
        (group, kind): int(n) for group, *ns in rows for kind, n in zip(kinds, ns, strict=True)
    }
    sums = {("all", kind): sum(n for (_, k), n in counts.items() if k == kind) for kind in kinds}
    made = {(group, kind): counts[group, kind] for group in groups() for kind in kinds}
    assert stated == made | sums


def test_the_command_on_the_page_selects_what_passes():
    lines = re.findall(r"^    (focus=.*\n(?:        .*\n)*)", PAGE.read_text(), re.MULTILINE)
    script = lines[0] + 'printf %s "$focus"'
    made = subprocess.run(
        ["bash", "-c", script], cwd=PAGE.parents[2], capture_output=True, text=True, check=True
    )
    passing = [spec for spec, expected in expectations().items() if expected == "pass"]
    assert made.stdout == "|".join(
        literal(spec) for spec in passing if group_of(spec) == "sig-scheduling"
    )


@pytest.mark.real
async def test_the_list_has_every_spec_of_its_groups(tmp_path):
    listed, present = expectations(), await selected(required_binary(), tmp_path)
    assert set(listed) <= present
    assert {spec for spec in present if COMPLETE.match(spec)} <= set(listed)


@pytest.mark.real
@pytest.mark.timeout(RUN_TIMEOUT_S + 300)
@pytest.mark.parametrize("group", groups())
async def test_specs_end_as_expected(group, tmp_path):
    program = required_binary()
    wanted = {
        spec: {"pass": "passed", "fail": "failed"}[kind]
        for spec, expected in expectations().items()
        if group_of(spec) == group and (kind := expected.partition(":")[0]) != "leave out"
    }
    shares = [list(wanted)[index::CLUSTERS] for index in range(CLUSTERS)]
    folders = [tmp_path / str(index) for index in range(CLUSTERS)]
    for folder in folders:
        folder.mkdir()
    outcomes = await asyncio.gather(
        *(play(program, share, folder) for share, folder in zip(shares, folders, strict=True))
    )
    states = {spec: state for outcome in outcomes for spec, state in outcome.items()}
    assert {spec: states.get(spec) for spec in wanted if states.get(spec) != wanted[spec]} == {}


def required_binary() -> str:
    program = binary()
    if program is None:
        pytest.skip(f"needs Kubernetes' e2e.test in ${ASSETS_VARIABLE} or on the PATH")
    return program


async def selected(program: str, folder: Path) -> set[str]:
    """The names of all specs."""
    nowhere = folder / "nowhere.kubeconfig"
    nowhere.write_text("apiVersion: v1\nkind: Config\n")
    return set(await run(program, nowhere, ".", folder, "--ginkgo.dry-run"))


async def play(program: str, specs: list[str], folder: Path) -> dict[str, str]:
    """How the specs end on a cluster of their own."""
    kubeconfig = folder / "kubeconfig"
    async with playground(kubeconfig):
        return await run(program, kubeconfig, "|".join(map(literal, specs)), folder)


def literal(text: str) -> str:
    """An expression for the text in Go's dialect, which knows no escaped spaces."""
    return re.sub(r"[][().*+?|^$\\{}]", r"\\\g<0>", text)


@contextlib.asynccontextmanager
async def playground(kubeconfig: Path):
    release = ["--kubernetes-version", "1.36"]
    options = ["--nodes", "5", *release, "--authorization", "rbac", "--no-page"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kubesched", "up", *options, "--kubeconfig", str(kubeconfig),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_TIMEOUT_S):
            assert b"cluster up" in await process.stdout.readline()
        yield
    finally:
        process.send_signal(signal.SIGINT)
        await process.wait()


async def run(
    program: str, kubeconfig: Path, focus: str, folder: Path, *more: str
) -> dict[str, str]:
    """The state of every spec that ran, by name."""
    report, log = folder / "report.json", folder / "log"
    command = [program, "--kubeconfig", str(kubeconfig), "--provider", "skeleton"]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command, "--ginkgo.focus", focus, "--ginkgo.json-report", str(report), *more,
            cwd=folder, stdout=output, stderr=output,
        )  # fmt: skip
        try:
            async with asyncio.timeout(RUN_TIMEOUT_S):
                await process.wait()
        except BaseException:
            process.kill()
            await process.wait()
            raise
    assert report.exists(), log.read_text(errors="replace")[-2000:]
    return {
        " ".join((*spec["ContainerHierarchyTexts"], spec["LeafNodeText"])): spec["State"]
        for spec in json.loads(report.read_text())[0]["SpecReports"]
        if spec["LeafNodeType"] == "It" and spec["State"] != "skipped"
    }
