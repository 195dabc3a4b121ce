"""The deployment guides, followed: their commands are taken from the pages and run as they stand
there.

What a node would do is played here: a pod's container becomes a process with the container's own
command line, files of the host live under a folder, and the port is a free one. On an embedded
cluster, kubesched plays the kube-scheduler that it replaces: it takes the same flags. Everything
else is as the reader would do it.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

import console
import pytest
import yaml

from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster
from kubesched.testing.control_plane import find_assets, free_ports

PATIENCE_S = 300.0

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

KUBEADM_MANIFEST = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "kube-scheduler", "namespace": "kube-system"},
    "spec": {
        "containers": [
            {
                "name": "kube-scheduler",
                "command": [
                    "kube-scheduler",
                    "--authentication-kubeconfig=/etc/kubernetes/scheduler.conf",
                    "--authorization-kubeconfig=/etc/kubernetes/scheduler.conf",
                    "--bind-address=127.0.0.1",
                    "--kubeconfig=/etc/kubernetes/scheduler.conf",
                    "--leader-elect=true",
                ],
                "livenessProbe": {"httpGet": {"path": "/livez"}},
                "readinessProbe": {"httpGet": {"path": "/readyz"}},
            }
        ]
    },
}
"""What kubeadm leaves on a control plane node, as far as it matters here."""


def commands(guide):
    """The commands of a guide in order, but for those that no test runs."""
    steps = console.steps(f"docs/how-to/{guide}.md")
    return [step.command for step in steps if not console.entries(console.NOT_RUN, step)]


@dataclass
class Host:
    """A machine of the cluster: its files, its port, and whatever its kubelet runs."""

    folder: Path
    port: int
    kubeconfig: Path
    kube_scheduler: str
    processes: list = field(default_factory=list)

    def mapped(self, text):
        """Paths and ports of the host as they are here."""
        for path in ("/etc/kubernetes", "/etc/kubesched", "/root"):
            text = re.sub(rf"(?<![\w.]){path}\b", str(self.folder) + path, text)
        return text.replace("127.0.0.1:10259", f"127.0.0.1:{self.port}")

    def path(self, name):
        result = Path(self.mapped(name))
        result.parent.mkdir(parents=True, exist_ok=True)
        return result

    @property
    def environment(self):
        tools = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {"PATH": tools, "HOME": str(self.folder), "KUBECONFIG": str(self.kubeconfig)}

    async def start(self, command):
        """A command that goes on, in a shell; its output is kept."""
        log = self.folder / f"{len(self.processes)}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_shell(
                f"exec {self.mapped(command)}",
                cwd=self.folder,
                env=self.environment,
                stdout=output,
                stderr=output,
            )
        self.processes.append(process)
        return process, log

    async def does(self, command):
        """A command that ends well; what it printed."""
        process, log = await self.start(command)
        async with asyncio.timeout(PATIENCE_S):
            code = await process.wait()
        assert code == 0, f"{command}: {log.read_text()}"
        return log.read_text()

    async def runs(self, manifest, *flags):
        """Run a pod's only container as a process, and wait until its probes are content."""
        (container,) = manifest["spec"]["containers"]
        words = [*container.get("command", ["kubesched"]), *container.get("args", ())]
        if words[0] == "kube-scheduler":
            words[0] = self.kube_scheduler
        words += [f"--secure-port={self.port}", *flags]
        process, log = await self.start(" ".join(words))
        for kind in ("livenessProbe", "readinessProbe"):
            await self.answers(container[kind]["httpGet"]["path"], process, log)
        return process, log

    async def answers(self, path, process, log):
        async with asyncio.timeout(PATIENCE_S):
            while True:
                assert process.returncode is None, log.read_text()
                url = f"https://127.0.0.1:{self.port}{path}"
                probe, _ = await self.start(f"curl -skf -o /dev/null {url}")
                if await probe.wait() == 0:
                    return
                await asyncio.sleep(0.1)

    async def close(self):
        for process in self.processes:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def stopped(process):
    """As a kubelet ends a container."""
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(PATIENCE_S):
        await process.wait()


async def says(log, text):
    async with asyncio.timeout(PATIENCE_S):
        while text not in log.read_text():  # noqa: ASYNC110  # it is another process that writes
            await asyncio.sleep(0.05)


@pytest.fixture
async def host(tmp_path):
    made = []

    def make(kubeconfig, kube_scheduler="kubesched run"):
        folder = tmp_path / f"host-{len(made)}"
        folder.mkdir()
        (folder / "deploy").symlink_to(console.ROOT / "deploy")
        made.append(Host(folder, *free_ports(1), kubeconfig, kube_scheduler))
        return made[-1]

    yield make
    for item in made:
        await item.close()


async def holder(cluster, name):
    return (await cluster.lease(name))["spec"].get("holderIdentity", "")


async def test_instead_of_kube_scheduler_and_back(cluster, host):
    if cluster.real:
        machine = host(cluster.plane.admin_kubeconfig, str(find_assets().kube_scheduler))
    else:
        machine = host(cluster.kubeconfig)
    shutil.copy(cluster.kubeconfig, machine.path("/etc/kubernetes/scheduler.conf"))
    machine.path("/root/any")
    manifest = machine.path("/etc/kubernetes/manifests/kube-scheduler.yaml")
    manifest.write_text(yaml.safe_dump(KUBEADM_MANIFEST))
    machine.path("/etc/kubernetes/scheduler-config.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    )
    await cluster.add_node("n1")
    running, _ = await machine.runs(yaml.safe_load(manifest.read_text()))
    await cluster.add_pod("by-kube-scheduler")
    await cluster.bound("by-kube-scheduler")
    first = await holder(cluster, "kube-scheduler")

    validate, shadow, keep, replace, lease, ready, restore = commands(
        "deploy-instead-of-kube-scheduler"
    )
    await machine.does(validate)
    trial, log = await machine.start(shadow)
    await says(log, "comparing with default-scheduler")
    await stopped(trial)
    assert await holder(cluster, "kube-scheduler") == first, "a shadow takes no lease"

    await machine.does(keep)
    await machine.does(replace)
    assert yaml.safe_load(manifest.read_text()) != KUBEADM_MANIFEST
    await stopped(running)
    running, _ = await machine.runs(yaml.safe_load(manifest.read_text()))
    await cluster.add_pod("by-kubesched")
    await cluster.bound("by-kubesched")
    assert (await machine.does(lease)).strip() not in ("", first)
    page = (await machine.does(ready)).splitlines()
    assert page[-1] == "readyz check passed"
    assert all(line.startswith("[+]") for line in page[:-1])

    await machine.does(restore)
    assert yaml.safe_load(manifest.read_text()) == KUBEADM_MANIFEST
    second = await holder(cluster, "kube-scheduler")
    await stopped(running)
    running, _ = await machine.runs(yaml.safe_load(manifest.read_text()))
    await cluster.add_pod("by-kube-scheduler-again")
    await cluster.bound("by-kube-scheduler-again")
    assert await holder(cluster, "kube-scheduler") not in ("", second)


async def test_as_a_second_scheduler(cluster, host):
    machine = host(cluster.plane.admin_kubeconfig if cluster.real else cluster.kubeconfig)
    apply, pods, lease, submit, describe = commands("deploy-as-second-scheduler")
    await machine.does(apply)
    await machine.does(pods)

    result = await machine.does("kubectl -n kube-system get configmap kubesched -o yaml")
    config = yaml.safe_load(yaml.safe_load(result)["data"]["scheduler.yaml"])
    # In a pod it is the service account's token that lets the scheduler in.
    config["clientConnection"] = {"kubeconfig": str(machine.kubeconfig)}
    machine.path("/etc/kubesched/scheduler.yaml").write_text(yaml.safe_dump(config))
    result = await machine.does("kubectl -n kube-system get deployment kubesched -o yaml")
    await machine.runs(yaml.safe_load(result)["spec"]["template"], "--bind-address=127.0.0.1")

    async def is_led():
        return "kubesched" in await machine.does(lease)

    await cluster.eventually(is_led)
    await cluster.add_node("n1")
    for name, text in console.files("docs/how-to/deploy-as-second-scheduler.md").items():
        (machine.folder / name).write_text(text)
    await machine.does(submit)
    assert await cluster.bound("first") == ["n1"]

    async def shows_who():
        text = await machine.does(describe)
        return re.search(
            r"Scheduled .* kubesched .*Successfully assigned default/first to n1", text
        )

    await cluster.eventually(shows_who)


@pytest.mark.parametrize("cluster", ["embedded"], indirect=True)
async def test_upgrade_roll_back_and_reconfigure(cluster, host, run, tmp_path):
    """With controllers and kubelets, which a bare API server has not."""
    kubeconfig = tmp_path / "whole.kubeconfig"
    async with EmbeddedCluster(ClusterSettings(kubeconfig=kubeconfig, nodes=2)) as whole:
        await run(kubeconfig=kubeconfig, config={"leaderElection": {"leaderElect": False}})
        machine = host(kubeconfig)
        await machine.does(commands("deploy-as-second-scheduler")[0])

        def images():
            listed, _ = whole.api.list("pods", "kube-system")
            return {
                pod["spec"]["containers"][0]["image"]
                for pod in listed
                if not pod["metadata"].get("deletionTimestamp")
            }

        set_image, done, undo, undone, restart, restarted = commands("deploy-upgrade-and-roll-back")
        await machine.does(set_image)
        await machine.does(done)
        assert images() == {"kubesched:NEW"}
        await machine.does(undo)
        await machine.does(undone)
        (old,) = images()
        assert old != "kubesched:NEW"
        before = {pod["metadata"]["uid"] for pod in whole.api.list("pods", "kube-system")[0]}
        await machine.does(restart)
        await machine.does(restarted)
        after = {
            pod["metadata"]["uid"]
            for pod in whole.api.list("pods", "kube-system")[0]
            if not pod["metadata"].get("deletionTimestamp")
        }
        assert not before & after
