"""`kubesched up --reload`: from a saved file to a decision by the new code.

    python benchmarks/reload.py [--nodes N] [--pods N] [--saves N]

A filter rejects every pod of a profile, with a number in the reason; saving the file changes the
number. The clock runs from the save until the API server has the new reason of a pending pod.
`--pods` pods of another profile run beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median

from kubesched.app.playground import PlaygroundSettings, playground
from kubesched.app.reloading import Reloader
from kubesched.config.load import load_file

PLUGIN = """
from kubesched.framework import FilterPlugin, unschedulable


class Refusing(FilterPlugin):
    name = "Refusing"

    def filter(self, state, pod, node_info):
        return unschedulable("version NUMBER")
"""
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: refusing
  plugins: {multiPoint: {enabled: [{name: "refusing:Refusing"}]}}
"""


async def measure(folder: Path, nodes: int, pods: int, saves: int) -> None:
    module, config = folder / "refusing.py", folder / "config.yaml"
    module.write_text(PLUGIN)
    config.write_text(CONFIG)
    reloader = Reloader(folder, None, lambda: load_file(config), lambda _line: None)
    settings = PlaygroundSettings(
        kubeconfig=folder / "kubeconfig", nodes=nodes, config=load_file(config)
    )
    async with playground(settings) as running, asyncio.TaskGroup() as group:
        assert running.seat is not None
        api = running.cluster.api
        for number in range(pods):
            api.create("pods", pod(f"p{number}", "default-scheduler"), "default")
        api.create("pods", pod("waiting", "refusing"), "default")
        while any(pod["status"]["phase"] == "Pending" for pod in api.list("pods")[0][1:-1]):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        task = group.create_task(reloader.run(running.seat, api, lambda: None))
        took = []
        for number in range(saves):
            await asyncio.sleep(0.5 + 0.013 * number)  # at different places in the period
            began = time.monotonic()
            module.write_text(PLUGIN.replace("NUMBER", str(number)))
            text = f"version {number}."
            while text not in str(api.get("pods", "default", "waiting")["status"]):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            took.append((time.monotonic() - began) * 1000)
        task.cancel()
    shown = f"least {min(took):.0f}, median {median(took):.0f}, most {max(took):.0f} ms"
    print(f"{nodes} nodes, {pods} pods, {saves} saves: {shown}")


def pod(name: str, scheduler: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "c", "image": "nginx"}],
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--pods", type=int, default=10)
    parser.add_argument("--saves", type=int, default=10)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder), args.nodes, args.pods, args.saves))


if __name__ == "__main__":
    main()
