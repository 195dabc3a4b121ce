"""Upstream's e2e specs for scheduling, and its conformance specs of the workload controllers, against `kubesched up`.

Which specs need real containers is read from the how-to page. The specs are dealt out to several clusters, which are
played at a time: most of their time is waiting. Without `e2e.test` only the page is looked at.
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
from pathlib import Path

import pytest

from kubesched.testing.control_plane import ASSETS_VARIABLE

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "run-kubernetes-e2e-tests.md"
ROW = re.compile(r"^\| `(?P<spec>\[sig-.*)` \| (?P<reason>.+) \|$", re.MULTILINE)
OFF_BY_DEFAULT = "[Feature:OffByDefault]"
GROUPS = {
    "sig-scheduling": (r"\[sig-scheduling\]", 28),
    "sig-apps conformance": (r"\[sig-apps\].*\[Conformance\]", 48),
}
CLUSTERS = 4
START_TIMEOUT_S = 60.0
RUN_TIMEOUT_S = 3000.0


def needing_containers() -> list[str]:
    return [row["spec"] for row in ROW.finditer(PAGE.read_text())]


def binary() -> str | None:
    folders = os.pathsep.join(filter(None, [os.environ.get(ASSETS_VARIABLE), os.environ["PATH"]]))
    return shutil.which("e2e.test", path=folders)


def test_the_page_lists_every_spec_once_and_its_command_skips_them():
    specs = needing_containers()
    assert len(set(specs)) == len(specs) == 12
    lines = re.findall(r"^    (skip=.*\n(?:        .*\n)*)", PAGE.read_text(), re.MULTILINE)
    script = lines[0] + 'printf %s "$skip"'
    made = subprocess.run(["bash", "-c", script], cwd=PAGE.parents[2], capture_output=True, text=True, check=True)  # fmt: skip
    for spec in specs:
        assert re.search(made.stdout, spec), spec
    assert re.search(made.stdout, f"[sig-scheduling] Workload {OFF_BY_DEFAULT} works")
    assert not re.search(made.stdout, "[sig-apps] Job should delete a job [Conformance]")


@pytest.mark.real
@pytest.mark.timeout(RUN_TIMEOUT_S + 300)
@pytest.mark.parametrize("group", GROUPS)
async def test_specs_pass(group, tmp_path):
    program = binary()
    if program is None:
        pytest.skip(f"needs Kubernetes' e2e.test in ${ASSETS_VARIABLE} or on the PATH")
    focus, expected = GROUPS[group]
    listed = await selected(program, focus, tmp_path)
    left_out = needing_containers()
    assert group != "sig-apps conformance" or set(left_out) <= set(listed)
    specs = [spec for spec in listed if spec not in left_out and OFF_BY_DEFAULT not in spec]
    assert len(specs) == expected
    shares = [specs[index::CLUSTERS] for index in range(CLUSTERS)]
    folders = [tmp_path / str(index) for index in range(CLUSTERS)]
    for folder in folders:
        folder.mkdir()
    outcomes = await asyncio.gather(
        *(play(program, share, folder) for share, folder in zip(shares, folders, strict=True))
    )
    states = {spec: state for outcome in outcomes for spec, state in outcome.items()}
    assert {spec: state for spec, state in states.items() if state != "passed"} == {}
    assert set(states) == set(specs)


async def selected(program: str, focus: str, folder: Path) -> list[str]:
    """The names of the specs that an expression selects."""
    nowhere = folder / "nowhere.kubeconfig"
    nowhere.write_text("apiVersion: v1\nkind: Config\n")
    return sorted(await run(program, nowhere, focus, folder, "--ginkgo.dry-run"))


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
    command = [sys.executable, "-m", "kubesched", "up", "--nodes", "5", "--no-page"]
    process = await asyncio.create_subprocess_exec(
        *command, "--kubeconfig", str(kubeconfig), stdout=asyncio.subprocess.PIPE
    )
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
