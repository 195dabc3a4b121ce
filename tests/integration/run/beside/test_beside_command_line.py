"""The command line: kube-scheduler's flags, defaults, refusals and exit codes."""

from __future__ import annotations

import asyncio
import os
import re

import pytest

pytestmark = pytest.mark.real


async def said(*command):
    """Exit code and what went to stderr."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={name: text for name, text in os.environ.items() if not name.startswith("KUBERNETES_")},
    )
    async with asyncio.timeout(300):
        _out, err = await process.communicate()
    return process.returncode, err.decode()


async def test_every_flag_has_kube_schedulers_name_and_default(programs):
    words = ("-v=1", "--config=/nonexistent")
    flags = []
    for program in (programs["theirs"], programs["ours"]):
        _code, log = await said(*program, *words)
        flags.append(dict(re.findall(r'FLAG: --([a-z0-9-]+)="(.*)"$', log, re.MULTILINE)))
    theirs, ours = flags
    assert len(theirs) > 60
    assert {name: ours.pop(name) for name in list(ours) if name not in theirs} == {
        "drain-timeout": "10s",
        "page": "false",
        "record": "",
        "record-limit": "1073741824",
        "reference-version": "",
    }
    assert ours == theirs


SAME_WORDS = [
    ["--nope"],
    ["--secure-port"],
    ["--secure-port=x"],
    ["--secure-port=70000"],
    ["--secure-port=-1"],
    ["--bind-address=foo"],
    ["--leader-elect=maybe"],
    ["--leader-elect-lease-duration=foo"],
    ["--kube-api-qps=x"],
    ["--kube-api-burst=99999999999"],
    ["--vmodule=foo"],
    ["-v=x"],
    ["-x"],
    ["--logging-format=xml"],
    ["--logging-format=json", "--vmodule=a=3"],
    ["--log-json-split-stream"],
    ["--log-text-info-buffer-size=1M"],
    ["--allow-metric-labels=foo"],
    ["--tls-sni-cert-key=foo"],
    ["--show-hidden-metrics-for-version=1.20"],
    ["--version=foo"],
]


@pytest.mark.parametrize("words", SAME_WORDS, ids=" ".join)
async def test_what_is_wrong_with_the_flags_is_said_in_the_same_words(programs, words):
    def essence(result):
        code, text = result
        last = text.rstrip().splitlines()[-1]
        return code, re.sub(r"^E\d{4} \S+ +\d+ \S+\] ", "", last)

    theirs = essence(await said(*programs["theirs"], *words))
    assert essence(await said(*programs["ours"], *words)) == theirs
    assert theirs[0] == 1


SAME_CODE = [
    ["a", "b"],
    ["--config=/nonexistent"],
    ["--config=/"],
    ["--kubeconfig=/nonexistent"],
    [],
    ["--feature-gates=Nope=true"],
    ["--feature-gates=SchedulerQueueingHints=false"],
    ["--emulated-version=1.20"],
    ["--min-compatibility-version=1.20"],
    ["--tls-cert-file=/nonexistent"],
    ["--tls-cipher-suites=foo"],
    ["--cert-dir=/proc/nonexistent"],
    ["--allow-metric-labels-manifest=/nonexistent"],
    ["--version"],
    ["--help"],
]


@pytest.mark.parametrize("words", SAME_CODE, ids=" ".join)
async def test_the_exit_code_is_the_same(programs, words):
    theirs, _ = await said(*programs["theirs"], *words)
    ours, log = await said(*programs["ours"], *words)
    assert ours == theirs
    assert "Traceback" not in log
