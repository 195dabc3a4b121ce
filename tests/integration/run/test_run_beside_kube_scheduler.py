"""`kubesched run` beside the real kube-scheduler: the same flags, refusals and metrics, and one Lease shared by both.

Everything here needs `$KUBEBUILDER_ASSETS` (marker `real`).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
import ssl
import sys
from dataclasses import dataclass

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kubesched.app.scheduler_app import metric_gates
from kubesched.config.features import DEFAULT_GATES
from kubesched.metrics import Registry, SchedulerMetrics
from kubesched.testing.control_plane import ASSETS_VARIABLE, find_assets, free_ports

pytestmark = pytest.mark.real

REAL = pytest.mark.parametrize(
    "cluster", [pytest.param("real", marks=pytest.mark.real)], indirect=True
)
OURS = (sys.executable, "-m", "kubesched", "run")
QUICK = {"leaseDuration": "10s", "renewDeadline": "8s", "retryPeriod": "1s"}
"""Quick, but not so quick that a busy machine makes leaders give up."""


@pytest.fixture
def assets():
    if not os.environ.get(ASSETS_VARIABLE):
        pytest.skip(f"needs kube-scheduler: set ${ASSETS_VARIABLE} to the folder that holds it")
    return find_assets()


# The command line.


async def said(*command):
    """Exit code and what went to stderr."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={name: text for name, text in os.environ.items() if not name.startswith("KUBERNETES_")},
    )
    async with asyncio.timeout(60):
        _out, err = await process.communicate()
    return process.returncode, err.decode()


async def test_every_flag_has_kube_schedulers_name_and_default(assets):
    words = ("-v=1", "--config=/nonexistent")
    flags = []
    for program in ((assets.kube_scheduler,), OURS):
        _code, log = await said(*program, *words)
        flags.append(dict(re.findall(r'FLAG: --([a-z0-9-]+)="(.*)"$', log, re.MULTILINE)))
    theirs, ours = flags
    assert len(theirs) > 60
    assert {name: ours.pop(name) for name in list(ours) if name not in theirs} == {
        "drain-timeout": "10s",
        "dry-run": "false",
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
async def test_what_is_wrong_with_the_flags_is_said_in_the_same_words(assets, words):
    def essence(result):
        code, text = result
        last = text.rstrip().splitlines()[-1]
        return code, re.sub(r"^E\d{4} \S+ +\d+ \S+\] ", "", last)

    theirs = essence(await said(assets.kube_scheduler, *words))
    assert essence(await said(*OURS, *words)) == theirs
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
async def test_the_exit_code_is_the_same(assets, words):
    theirs, _ = await said(assets.kube_scheduler, *words)
    ours, log = await said(*OURS, *words)
    assert ours == theirs
    assert "Traceback" not in log


# Both against one control plane.


@dataclass
class Contestant:
    """One scheduler process of either kind, whose log goes to a file."""

    name: str
    command: list[str]
    log: object
    process: asyncio.subprocess.Process | None = None

    async def start(self):
        with self.log.open("ab") as output:
            self.process = await asyncio.create_subprocess_exec(
                *self.command, stdout=output, stderr=output
            )

    async def kill(self, signum=signal.SIGKILL):
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signum)
        return await self.process.wait()

    def bindings(self):
        """(time, pod) of every binding it says it made; all on one clock, to the microsecond."""
        pattern = r'^I(\d{4} [\d:.]+) .*"Successfully bound pod to node" pod="default/([^"]+)"'
        return re.findall(pattern, self.log.read_text(), re.MULTILINE)

    def acquired(self):
        """When it took the lease."""
        pattern = r'^I(\d{4} [\d:.]+) .*"Successfully acquired lease"'
        return re.findall(pattern, self.log.read_text(), re.MULTILINE)


@pytest.fixture
async def contestant(assets, cluster, tmp_path):
    """Start schedulers: `await contestant("name", theirs=True, port=0)`; they end with the test."""
    started = []

    async def start(name, *flags, theirs, election):
        config = tmp_path / f"{name}.yaml"
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(cluster.kubeconfig), "qps": 500, "burst": 500},
            "leaderElection": election,
        }
        config.write_text(json.dumps(document))
        program = [str(assets.kube_scheduler)] if theirs else list(OURS)
        command = [*program, f"--config={config}", "-v=2", *flags]
        made = Contestant(name, command, tmp_path / f"{name}.log")
        await made.start()
        started.append(made)
        return made

    yield start
    for each in started:
        await each.kill()


async def scraped(cluster, port):
    """The page of metrics as an administrator gets it: name -> (type, labels, buckets, stability)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    folder = cluster.plane.folder
    context.load_cert_chain(folder / "admin.crt", folder / "admin.key")
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.get(f"https://127.0.0.1:{port}/metrics") as answer,
    ):
        assert answer.status == 200
        page = await answer.text()
    found = {}
    for family in text_string_to_metric_families(page):
        labels = {tuple(sorted(set(each.labels) - {"le"})) for each in family.samples}
        buckets = {float(each.labels["le"]) for each in family.samples if "le" in each.labels}
        stability = re.match(r"\[\w+\]", family.documentation)
        found[family.name] = (family.type, labels, buckets, stability and stability[0])
    return found


async def workload(cluster, prefix):
    """A pod that fits, one that never does, one that needs preemption, one that is gated; then they leave.

    The deletion of the first has the queue ask plugins whether the second could be helped by it.
    """
    await cluster.add_pod(f"{prefix}-fits", cpu="1500m")
    await cluster.bound(f"{prefix}-fits")
    await cluster.add_pod(f"{prefix}-big", cpu="100")
    await cluster.condition(f"{prefix}-big")
    await cluster.add_pod(f"{prefix}-gated", schedulingGates=[{"name": "example.com/g"}])
    await cluster.add_pod(f"{prefix}-high", cpu="1500m", priorityClassName="high")

    async def nominated():
        return (await cluster.pod(f"{prefix}-high")).status.nominated_node_name

    await cluster.eventually(nominated)
    for name in ("fits", "big", "gated", "high"):
        path = f"/api/v1/namespaces/default/pods/{prefix}-{name}?gracePeriodSeconds=0"
        await cluster.admin._write("DELETE", path, b"")


def _observed():
    """What the workload above has schedulers observe: all families but those of features it does not touch."""
    registry = Registry()
    SchedulerMetrics(registry, metric_gates(DEFAULT_GATES))
    unobserved = re.compile(r"scheduler_(permit_wait_|dra_|resourceclaim_|volume_)")
    return {
        family.name.removesuffix("_total")
        for family in registry.families()
        if not unobserved.match(family.name)
    }


OBSERVED = _observed()
ROUNDS = 100
"""A tenth of the attempts is timed plugin by plugin: that none of so many was is out of the question."""


async def scraped_with(cluster, port, prefix, families):
    """The page once it has these families: some show only after an observation, some of those a second later."""
    missing = families
    for number in range(ROUNDS):
        await workload(cluster, f"{prefix}-{number}")
        page = await scraped(cluster, port)
        missing = families - page.keys()
        if not missing:
            return page
    raise AssertionError(f"{prefix} never showed {sorted(missing)}")


GO_ONLY = re.compile(
    # Of Go's runtime and of libraries that the binary happens to hold; nothing about scheduling.
    r"go_|aggregator_|apiserver_|workqueue_|cardinality_|rest_client_(exec|transport|request_size|response_size)"
    r"|process_network|process_virtual_memory_max|(disabled|hidden|registered)_metrics|version_info|authenticat|authoriz"
)


@REAL
async def test_every_metric_has_kube_schedulers_name_type_labels_and_buckets(cluster, contestant):
    await cluster.add_node("n1", cpu="2")
    await cluster.create(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        apiVersion="scheduling.k8s.io/v1",
        kind="PriorityClass",
        metadata={"name": "high"},
        value=1000,
    )
    pages = []
    for name, theirs in (("theirs", True), ("ours", False)):
        (port,) = free_ports(1)
        scheduler = await contestant(
            name,
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            f"--authentication-kubeconfig={cluster.kubeconfig}",
            f"--authorization-kubeconfig={cluster.kubeconfig}",
            theirs=theirs,
            election={"leaderElect": True, **QUICK},
        )
        pages.append(await scraped_with(cluster, port, name, OBSERVED))
        assert await scheduler.kill(signal.SIGTERM) == 0
    theirs, ours = pages
    for page in pages:
        assert {name for name in page if name.startswith("scheduler_")} == OBSERVED
    missing = {name for name in theirs if name not in ours and not GO_ONLY.match(name)}
    assert missing == set()
    different = {
        name: (theirs[name], ours[name])
        for name in theirs
        if name in ours and theirs[name] != ours[name] and not GO_ONLY.match(name)
    }
    assert different == {}


@REAL
async def test_two_of_ours_and_one_of_theirs_never_schedule_at_the_same_time(cluster, contestant):
    """Pods arrive all the time while leaders are killed, frozen and stopped in turn."""
    for number in range(20):
        await cluster.add_node(f"n{number}", cpu="64")
    election = {"leaderElect": True, **QUICK}
    all_three = [
        await contestant("go", "--secure-port=0", theirs=True, election=election),
        await contestant("one", "--secure-port=0", theirs=False, election=election),
        await contestant("two", "--secure-port=0", theirs=False, election=election),
    ]
    created = []

    async def keep_creating():
        for number in itertools.count():
            await cluster.add_pod(f"p{number}", cpu="10m")
            created.append(f"p{number}")
            await asyncio.sleep(0.2)

    async def leader(hand_overs=0):
        """Who leads, after so many hand-overs."""

        async def found():
            taken = sorted((at, each.name, each) for each in all_three for at in each.acquired())
            return taken[-1][2] if len(taken) > hand_overs else None

        return await cluster.eventually(found)

    async def progress():
        so_far = len(created)
        await cluster.eventually(_count_reached(created, so_far + 3))
        await cluster.bound(*created[so_far : so_far + 3])

    arriving = asyncio.ensure_future(keep_creating())
    try:
        await leader()
        await progress()
        ways = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL)
        for hand_overs, how in enumerate(ways, start=1):
            current = await leader(hand_overs - 1)
            if how is signal.SIGSTOP:
                current.process.send_signal(how)
            else:
                await current.kill(how)
            other = await leader(hand_overs)
            assert other is not current
            await progress()
            if how is signal.SIGSTOP:
                current.process.send_signal(signal.SIGCONT)
                async with asyncio.timeout(60):
                    assert await current.process.wait() == 1
            await current.start()
    finally:
        arriving.cancel()
        await asyncio.gather(arriving, return_exceptions=True)
    await cluster.bound(*created)

    bindings = sorted((*each, one.name) for one in all_three for each in one.bindings())
    assert sorted(pod for _at, pod, _by in bindings) == sorted(set(created))
    turns = [name for name, _ in itertools.groupby(by for _at, _pod, by in bindings)]
    transitions = (await cluster.lease())["spec"]["leaseTransitions"]
    assert len(turns) <= transitions + 1, turns
    assert len(set(turns)) > 1


def _count_reached(listed, count):
    async def reached():
        return len(listed) >= count

    return reached
