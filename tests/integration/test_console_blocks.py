"""The console blocks of the documentation, run page by page; what a page shows is what its commands
print.

Commands of kubectl and curl are not run where the program is missing: the test then runs the
others, and is skipped at its end with a reason that lists those commands.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import console
import pytest
import yaml
from console import Step, Terminal
from dumps import dump_of_six_nodes, dump_of_twelve_nodes

from kubesched.app.cli import main as cli
from kubesched.client.client_config import load_config
from kubesched.client.pool import HttpTransport
from kubesched.client.rest import RestClient
from kubesched.testing import make_pod
from kubesched.testing.builders import PodBuilder

GUIDES = "tests/integration/run/test_deployment_guides.py"
FOLLOWED_ELSEWHERE = {
    "docs/how-to/deploy-as-second-scheduler.md": GUIDES,
    "docs/how-to/deploy-instead-of-kube-scheduler.md": GUIDES,
    "docs/how-to/deploy-upgrade-and-roll-back.md": GUIDES,
}
"""Pages whose commands need a cluster that runs the scheduler's image, and the tests that play one.
"""

EXIT_CODES = {
    "docs/how-to/plan-capacity.md: kubesched plan --drain": 2,
}
"""Of commands that do not end with 0; the page says why."""

PLACES_VARY = {
    "README.md",
    "docs/how-to/use-an-extender.md",
    "docs/tutorial/first-deployment.md",
}
"""Pages that show nodes which a playground's scheduler has drawn by lot."""


async def create(terminal: Terminal, *pods: PodBuilder) -> None:
    """Create pods in the playground."""
    transport = HttpTransport(load_config(str(terminal.kubeconfig)).connection)
    try:
        rest = RestClient(transport, user_agent="test", random=Random(1))
        for pod in pods:
            body = {"apiVersion": "v1", "kind": "Pod", **pod.json}
            await rest.post_raw("/api/v1/namespaces/default/pods", json.dumps(body).encode())
    finally:
        await transport.aclose()


async def a_playground(terminal: Terminal) -> None:
    await terminal.run("scripts/playground --no-page")


async def pending_pods(terminal: Terminal) -> None:
    """Ten nodes with pods, three of the nodes tainted; and two pods that wait: for room, and for a
    gate.
    """
    pools = [
        {"name": "node", "count": 7},
        {
            "name": "gpu",
            "count": 3,
            "taints": [{"key": "gpu", "value": "true", "effect": "NoSchedule"}],
        },
    ]
    template = {"apiVersion": "kubesched.io/v1alpha1", "kind": "NodePools", "pools": pools}
    terminal.write("nodes.yaml", yaml.safe_dump(template))
    await terminal.run("kubesched up --node-template nodes.yaml --no-page")
    placed = {f"web-{i}": f"node-{i}" for i in range(6)} | {
        f"train-{i}": f"gpu-{i}" for i in range(3)
    }
    pods = [
        *(make_pod(name).cpu("250m").on(node) for name, node in placed.items()),
        make_pod("worker-0").cpu("500m").on("node-6"),
        make_pod("late").gate("quota"),
        make_pod("greedy").cpu("7900m"),
    ]
    await create(terminal, *pods)


async def a_dump(terminal: Terminal) -> None:
    terminal.write("dump.json", dump_of_twelve_nodes())


async def a_cluster_file(terminal: Terminal) -> None:
    terminal.write("cluster.json", dump_of_six_nodes())


async def a_recording(terminal: Terminal) -> None:
    await terminal.run("kubesched up --demo --once --record recording")


async def sources_of_a_page(terminal: Terminal) -> None:
    """A dump and a recording, for the two commands that read them."""
    terminal.write("snapshot.jsonl.gz", dump_of_twelve_nodes())
    await terminal.run("kubesched up --demo --once --name other --record rec")


async def a_cluster_without_scheduler(terminal: Terminal) -> None:
    await terminal.run("kubesched up --nodes 2 --no-scheduler")
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(terminal.kubeconfig)},
    }
    terminal.write("scheduler.yaml", yaml.safe_dump(config))


SERVE = "kubesched run --config scheduler.yaml"


async def serve(terminal: Terminal) -> None:
    asks = [f"--{what}-kubeconfig=$KUBECONFIG" for what in ("authentication", "authorization")]
    await terminal.run(f"{SERVE} {' '.join(asks)}")
    (user,) = yaml.safe_load(terminal.kubeconfig.read_text())["users"]
    terminal.environment["TOKEN"] = user["user"]["token"]


async def a_scheduler_with_a_shadow(terminal: Terminal) -> None:
    await a_cluster_without_scheduler(terminal)
    config = yaml.safe_load((terminal.folder / "candidate.yaml").read_text())
    config |= yaml.safe_load((terminal.folder / "scheduler.yaml").read_text())
    terminal.write("scheduler.yaml", yaml.safe_dump(config))
    await serve(terminal)


BEFORE: dict[str, Callable[[Terminal], Awaitable[None]]] = {
    "README.md: kubectl run greedy": a_playground,
    "docs/explanation/recorder.md: kubesched replay": a_recording,
    "docs/how-to/compare-with-kube-scheduler.md: kubesched shadow": a_playground,
    "docs/how-to/debug-a-pending-pod.md: kubesched explain pod greedy": pending_pods,
    "docs/how-to/debug-a-pending-pod.md: kubesched explain pod web-3-1": a_dump,
    (
        "docs/how-to/plan-capacity.md: kubesched capacity -f web.yaml --from cluster.json"
    ): a_cluster_file,
    "docs/how-to/promote-a-plugin.md: curl": a_scheduler_with_a_shadow,
    "docs/how-to/use-the-page.md: kubesched up": sources_of_a_page,
    "docs/reference/cli.md: kubectl get": a_playground,
}
"""What a page presumes, and the first command that needs it."""

ALL_STEPS = [step for page in console.pages() for step in console.steps(page)]
RUN_HERE = [
    step
    for step in ALL_STEPS
    if step.page not in FOLLOWED_ELSEWHERE and not console.entries(console.NOT_RUN, step)
]


@pytest.mark.parametrize("page", sorted({step.page for step in RUN_HERE}))
async def test_a_page_shows_what_its_commands_print(page: str, tmp_path: Path) -> None:
    steps = [step for step in RUN_HERE if step.page == page]
    missing = [step for step in steps if console.is_program_missing(step)]
    before = dict(BEFORE)
    async with console.terminal(tmp_path, places_vary=page in PLACES_VARY) as terminal:
        if page.startswith("plugins/"):
            terminal.install_plugins()
        for name, text in console.files(page).items():
            terminal.write(name, text)
        for step in steps:
            if step in missing:
                continue
            for key in console.entries(before, step):
                await before.pop(key)(terminal)
            await terminal.follow(
                step, *(EXIT_CODES[key] for key in console.entries(EXIT_CODES, step))
            )
    if missing:
        pytest.skip(
            "run but for these, whose programs are not installed:\n" + "\n".join(map(str, missing))
        )


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(step, id=str(step))
        for step in ALL_STEPS
        if step.command.startswith("kubesched ") and step not in RUN_HERE
    ],
)
def test_a_command_that_is_not_run_here_is_understood(step: Step) -> None:
    cli.parser_of().parse_args(shlex.split(step.command)[1:])


@pytest.mark.parametrize("table", [console.NOT_RUN, EXIT_CODES, BEFORE])
def test_every_entry_of_a_table_means_a_command(table: dict[str, object]) -> None:
    assert {key for step in ALL_STEPS for key in console.entries(table, step)} == set(table)


def test_every_text_that_is_looked_for_occurs() -> None:
    commands = [*(step.command for step in ALL_STEPS), SERVE]
    texts = [
        *commands,
        *(text for page in console.pages() for text in console.files(page).values()),
    ]
    for start in console.READY:
        assert any(command.startswith(start) for command in commands), start
    for page in PLACES_VARY:
        assert any("node-" in line for step in console.steps(page) for line in step.shown), page
    for old in console.SUBSTITUTIONS:
        assert any(old in text for text in texts), old


def test_the_script_of_the_playground_is_what_it_is_replaced_with() -> None:
    script = (console.ROOT / "scripts" / "playground").read_text()
    assert script.endswith('/bin/kubesched" up --demo "$@"\n')


@pytest.mark.parametrize(("page", "module"), FOLLOWED_ELSEWHERE.items())
def test_a_page_that_is_followed_elsewhere_is(page: str, module: str) -> None:
    assert not any(step.shown for step in console.steps(page)), "output is not compared there"
    assert Path(page).stem in (console.ROOT / module).read_text()


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        pytest.param(["a", "b"], "a\n", id="a line is missing"),
        pytest.param(["a"], "a\nb\n", id="a line too many"),
        pytest.param(["3 fit."], "4 fit.\n", id="another number"),
        pytest.param(["...", "b"], "a\n", id="what follows dots is missing"),
        pytest.param(["pod/a created"], "pod/a configured\n", id="another word"),
        pytest.param(["web node-1"], "web node-2\n", id="another node"),
    ],
)
def test_other_output_than_shown_is_told(shown: list[str], printed: str) -> None:
    assert isinstance(console.matched(shown, printed), str)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        pytest.param(["a", "...", "d"], "a\nb\nc\nd\n", id="dots stand for lines"),
        pytest.param(["a", "..."], "a\n", id="or for none"),
        pytest.param(["NAME   AGE", "x-7q2j7   3s"], "NAME    AGE\nx-bdn96   2m1s\n", id="names"),
        pytest.param(["up at 127.0.0.1:1 in 1.5 s"], "up at 127.0.0.1:234 in 12 s\n", id="ports"),
    ],
)
def test_output_that_varies_is_as_shown(shown: list[str], printed: str) -> None:
    assert not isinstance(console.matched(shown, printed), str)
