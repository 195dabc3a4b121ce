"""`kubesched explain`: why a pod is pending, or why it is where it is.

    explain pod NAME         one pod
    explain pods             several, those with the same story together
    explain workload K/NAME  the pods of a workload, and why it has no more
    explain attempts         the attempts of a recording, for --at
    explain schema           the JSON schema of -o json

`explain KIND/NAME` and `explain KIND NAME` mean `explain pod NAME` or `explain workload KIND/NAME`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kubesched.cli.configuration import add_configuration, load_configuration
from kubesched.cli.options import add_options, add_output
from kubesched.cli.parsing import Subparsers, did_you_mean, usage_error
from kubesched.cli.records import write_record
from kubesched.cli.sources import add_state_source, check_state_source, load_state, recorded_time
from kubesched.errors import KubeschedError

if TYPE_CHECKING:
    from kubesched.api.core_v1 import Pod
    from kubesched.config.features import FeatureGates
    from kubesched.config.types import KubeSchedulerConfiguration
    from kubesched.explain import Explainer, Explanation
    from kubesched.explain.selection import Selection
    from kubesched.explain.workloads import Workload
    from kubesched.state.cluster_state import ClusterState

_DESCRIPTION = """\
Say why a pod is pending, or why it is where it is, by asking every plugin about every node.

The answer comes from the scheduler's own code over the objects of a cluster or a dump; nothing is
written. It works on clusters that kube-scheduler schedules: give its configuration with --config.

'explain pod/NAME', 'explain deployment/NAME' and 'explain deployment NAME' work, too.
"""

_POD = """\
Explain one pod: verdict, reasons with node counts, the most telling nodes, and what it waits for.

  Placed   bound: its rank among the feasible nodes, and which plugins decided
  Fits     some node would take it now
  NotNow   no node takes it as things stand, but room can come
  Never    no node of the cluster could take it, even if it were empty and untainted
  Waiting  for something that is not a node: gates, claims, another scheduler

With --fix, the smallest changes that make the pod fit; each was tried with the real filters.
-o json prints every node and has a published schema ('kubesched explain schema').
"""

_PODS = """\
Explain several pods. Pods with the same story are told together.
"""

_WORKLOAD = """\
Explain the pods of a Deployment, ReplicaSet, StatefulSet, DaemonSet or Job that are pending, and say
why its controller makes no more: a quota, an admission that refuses them, a pause.
"""

_ATTEMPTS = """\
List the scheduling attempts of a recording, oldest first, with the numbers that --at takes.
"""

SHOWN_NODES = 10

_SELECTION = """
-l, --selector LABELS {=}  such as app=web
-A, --all-namespaces       of every namespace
--placed                   placed pods, too (default: pending ones only)
"""
_COMMON = """
-n, --namespace NAMESPACE {=}  its namespace
--fix              look for the smallest changes that make it fit
--ask-extenders    ask the configuration's extenders, too (default: say that they were not asked)
"""
_OF_RECORDING = """
name POD {?}       only of this pod (default: of all)
--recording DIR {!}  the recording
-n, --namespace NAMESPACE {=default}  of POD
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "explain",
        help="say why a pod is pending, or why it is where it is",
        description=_DESCRIPTION,
    )
    kinds = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    pod = kinds.add_parser("pod", help="explain one pod", description=_POD)
    add_options(pod, "name NAME  the pod; NAMESPACE/NAME works, too")
    add_options(pod, "--node NODE {=}  tell one node's whole story")
    pods = kinds.add_parser("pods", help="explain several pods", description=_PODS)
    add_options(pods, _SELECTION)
    workload = kinds.add_parser("workload", help="explain a workload", description=_WORKLOAD)
    add_options(workload, "workload KIND/NAME  such as deployment/web")
    for parser in (pod, pods, workload):
        add_options(parser, _COMMON)
        add_output(parser, "table", "wide", "json", "yaml")
        add_configuration(parser)
        add_state_source(parser)
    attempts = kinds.add_parser(
        "attempts", help="list the attempts of a recording", description=_ATTEMPTS
    )
    add_options(attempts, _OF_RECORDING)
    add_output(attempts, "table", "json", "yaml")
    kinds.add_parser("schema", help="print the JSON schema of -o json")


def run_words(words: Sequence[str]) -> int:
    """Run with the words after `kubesched explain`."""
    from kubesched.cli.main import parse_and_run
    from kubesched.planning.workload_kinds import KINDS, workload_kind

    word, slash, _ = words[0].partition("/") if words else ("", "", "")
    if slash and workload_kind(word) is None:
        return usage_error(f'unknown kind "{word}"{did_you_mean(word, list(KINDS))}')
    return parse_and_run(sys.modules[__name__], ["explain", *spelled_out(words)])


def spelled_out(words: Sequence[str]) -> list[str]:
    """The words with `KIND/NAME` or `KIND NAME` as a subcommand and its argument."""
    from kubesched.planning.workload_kinds import workload_kind

    first, *rest = words or [""]
    word, slash, name = first.partition("/")
    kind = workload_kind(word)
    if kind is None or (not slash and (word in ("pod", "pods") or not rest)):
        return list(words)
    if not slash:
        name, *rest = rest
    return ["pod", name, *rest] if kind == "Pod" else ["workload", f"{word}/{name}", *rest]


def why() -> int:
    """Entry point of `kubectl-why`: `kubectl why POD` is `kubesched explain pod POD --fix`."""
    from kubesched.cli.main import run_process

    return run_process(["explain", *why_words(sys.argv[1:])])


def why_words(words: Sequence[str]) -> list[str]:
    """What `explain` is asked for `kubectl why WORD...`."""
    if not words or words[0] in ("-h", "--help"):
        return ["pod", "--help"]
    spelled = spelled_out(words)
    return [*(spelled if spelled[0] in ("pod", "pods", "workload") else ["pod", *words]), "--fix"]


def main(args: argparse.Namespace) -> int:
    if args.what == "schema":
        return _print_schema()
    if args.what == "attempts":
        return _list_attempts(args)
    if args.what == "pod" and args.recording is not None and not args.config:
        check_state_source(args)
        played = _explain_recorded(args)
        if played is not None:
            return _show(args, played)
    explain = {"pod": _explain_pod, "pods": _explain_pods, "workload": _explain_workload}[args.what]
    with _explaining(args) as (state, explainer):
        return explain(args, state, explainer)


def _print_schema() -> int:
    import json

    from kubesched.explain.model import schema

    print(json.dumps(schema(), indent=2))
    return 0


def _list_attempts(args: argparse.Namespace) -> int:
    from kubesched.cli import explain_tables
    from kubesched.page.attempts import from_recording
    from kubesched.recording.reader import RecordingReader

    listed = from_recording(RecordingReader.of_folder(args.recording))
    if args.name:
        pod = args.name if "/" in args.name else f"{args.namespace}/{args.name}"
        listed = [attempt for attempt in listed if attempt.pod == pod]
    if args.output == "table":
        explain_tables.print_attempts(listed)
    else:
        write_record(args.output, [explain_tables.attempt_fields(attempt) for attempt in listed])
    return 0


def _configuration(args: argparse.Namespace) -> tuple[KubeSchedulerConfiguration, FeatureGates]:
    """What the options say; without `--config`, that of a recording is its own."""
    if args.config or args.recording is None:
        return load_configuration(args)
    import msgspec

    from kubesched.config import features
    from kubesched.config.load import load
    from kubesched.recording.reader import RecordingReader

    header = RecordingReader.of_folder(args.recording).segments[-1].header
    gates = features.from_map(header.feature_gates)
    return load(msgspec.json.encode(header.config), args.recording, gates), gates


@contextmanager
def _explaining(args: argparse.Namespace) -> Iterator[tuple[ClusterState, Explainer]]:
    """A state and its explainer, with an event loop for questions to extenders if they are asked."""
    from kubesched.explain.sources import explainer_of

    config, gates = _configuration(args)
    state = load_state(args)
    if not args.ask_extenders:
        yield state, explainer_of(state, config, gates=gates)
        return
    import asyncio

    with asyncio.Runner() as runner:
        explainer = explainer_of(state, config, gates=gates, ask_extenders=runner.run)
        try:
            yield state, explainer
        finally:
            for framework in list(explainer.assembly.frameworks.values())[:1]:
                for extender in framework.handle.extenders:
                    runner.run(extender.aclose())  # type: ignore[attr-defined]  # they are HTTP extenders


# -- one pod ---------------------------------------------------------------------------------------


def _explain_pod(args: argparse.Namespace, state: ClusterState, explainer: Explainer) -> int:
    pod = _find_pod(state, *_key(args))
    if args.node and args.node not in explainer.assembly.table.row_of:
        raise KubeschedError(f'node "{args.node}" not found in {state.source}')
    return _show(args, explainer.explain(pod, _selection(args), fix=args.fix), state.notes)


def _explain_recorded(args: argparse.Namespace) -> Explanation | None:
    """The pod's attempt that the options mean, if the recording can be played up to it."""
    from kubesched.app.explaining import explain_attempt, find_attempt
    from kubesched.logs import silence
    from kubesched.recording.reader import RecordingReader

    silence()
    reader = RecordingReader.of_folder(args.recording)
    number, wall_time = recorded_time(reader, args.at)
    attempt = find_attempt(reader, "/".join(_key(args)), number=number, wall_time=wall_time)
    if attempt is None:
        return None
    explanation = explain_attempt(attempt, _selection(args), fix=args.fix)
    if args.node and not explanation.matrix:
        raise KubeschedError(f'node "{args.node}" was not there at attempt {attempt.number}')
    return explanation


def _selection(args: argparse.Namespace) -> Selection:
    from kubesched.explain import selection

    if args.node:
        return selection.one_node(args.node)
    if args.output == "table":
        return selection.telling_nodes(SHOWN_NODES)
    return selection.every_node


def _show(args: argparse.Namespace, explanation: Explanation, told: Sequence[str] = ()) -> int:
    """Print an explanation; `told` are notes that are printed already."""
    from kubesched.cli import explain_tables

    if args.output in ("json", "yaml"):
        write_record(args.output, explanation)
    elif args.node:
        explain_tables.print_node(explanation)
    else:
        explain_tables.print_pod(explanation, wide=args.output == "wide", told=told)
    return 0


def _key(args: argparse.Namespace) -> tuple[str, str]:
    namespace, slash, name = args.name.removeprefix("pod/").rpartition("/")
    if slash and args.namespace and args.namespace != namespace:
        raise KubeschedError(f"{args.name} and --namespace {args.namespace} contradict each other")
    return namespace or _namespace(args), name


def _namespace(args: argparse.Namespace) -> str:
    """The given one; of a live cluster, else, the context's."""
    if args.namespace or _is_stored(args):
        return args.namespace or "default"
    from kubesched.client.client_config import load_default_config

    return load_default_config(args.kubeconfig, context=args.context).namespace


def _is_stored(args: argparse.Namespace) -> bool:
    return bool(args.from_) or args.recording is not None


def _find_pod(state: ClusterState, namespace: str, name: str) -> Pod:
    from kubesched.api.core_v1 import Pod

    pod = state.get(Pod, namespace, name)
    if pod is not None:
        return pod
    elsewhere = {p.metadata.namespace for p in state.of(Pod) if p.metadata.name == name}
    hint = f"; there is one in {', '.join(sorted(elsewhere))}" if elsewhere else ""
    raise KubeschedError(f'pod "{namespace}/{name}" not found in {state.source}{hint}')


# -- several pods ----------------------------------------------------------------------------------


def _explain_pods(args: argparse.Namespace, state: ClusterState, explainer: Explainer) -> int:
    pods = _select_pods(args, state)
    if not pods:
        kind = "pods" if args.placed else "pending pods"
        print(f"no {kind} match", file=sys.stderr)
        return 0
    if args.output in ("json", "yaml"):
        write_record(args.output, _explained(args, explainer, pods))
    else:
        _print_groups(args, state, explainer, pods)
    return 0


def _explained(
    args: argparse.Namespace, explainer: Explainer, pods: Sequence[Pod]
) -> list[Explanation]:
    from kubesched.explain import selection

    return [explainer.explain(pod, selection.every_node, fix=args.fix) for pod in pods]


def _print_groups(
    args: argparse.Namespace, state: ClusterState, explainer: Explainer, pods: Sequence[Pod]
) -> None:
    """Every distinct story; fixes are looked for once for each."""
    from kubesched.cli import explain_tables
    from kubesched.explain import selection
    from kubesched.explain.groups import grouped

    groups = grouped([explainer.explain(pod, selection.no_node) for pod in pods])
    if args.fix:
        for group in groups:
            pod = _find_pod(state, *group[0].pod.split("/"))
            group[0] = explainer.explain(pod, selection.no_node, fix=True)
    explain_tables.print_groups(groups, told=state.notes)


def _select_pods(args: argparse.Namespace, state: ClusterState) -> Sequence[Pod]:
    from kubesched.api import selectors
    from kubesched.api.core_v1 import Pod

    try:
        selector = selectors.parse(args.selector)
    except selectors.SelectorError as error:
        raise KubeschedError(f"--selector {args.selector!r}: {error}") from None
    namespace = "" if args.all_namespaces else _namespace(args)
    return [
        pod
        for pod in state.of(Pod)
        if (not namespace or pod.metadata.namespace == namespace)
        and (args.placed or not pod.spec.node_name)
        and selector.matches(pod.metadata.labels)
    ]


# -- a workload ------------------------------------------------------------------------------------


def _explain_workload(args: argparse.Namespace, state: ClusterState, explainer: Explainer) -> int:
    from kubesched.cli import explain_tables

    workload = _find_workload(args, state)
    if args.output in ("json", "yaml"):
        record = {
            "workload": f"{workload.kind}/{workload.namespace}/{workload.name}",
            "wanted": workload.wanted,
            "obstacles": workload.obstacles,
            "pods": _explained(args, explainer, workload.pods),
        }
        write_record(args.output, record)
        return 0
    explain_tables.print_workload(workload)
    if workload.pending:
        print()
        _print_groups(args, state, explainer, workload.pending)
    return 0


def _find_workload(args: argparse.Namespace, state: ClusterState) -> Workload:
    from kubesched.errors import NotFound
    from kubesched.explain.workloads import ask_cluster, find_workload
    from kubesched.planning.deletion import workload_named

    kind, namespace, name = workload_named(args.workload, _namespace(args), "explain workload")
    workload = find_workload(state, kind, namespace, name)
    if not _is_stored(args):
        from kubesched.app.event_loop import run
        from kubesched.state.live import live_client

        async def ask() -> None:
            async with live_client("explain", args.kubeconfig, args.context) as (client, _):
                await ask_cluster(client, workload)

        try:
            run(ask())
        except NotFound:
            workload.pods, workload.wanted = [], None
    if not workload.is_known:
        raise KubeschedError(
            f'{kind} "{namespace}/{name}" not found in {state.source}'
            + (", nor a pod that it owns" if _is_stored(args) else "")
        )
    return workload
