"""`kubesched explain`: why a pod is pending, or why it is where it is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kubesched.cli.configuration import load_configuration
from kubesched.cli.parsing import Subparsers, add_feature_gates, add_output
from kubesched.cli.records import write_record
from kubesched.cli.sources import add_state_source, check_state_source, load_state
from kubesched.errors import KubeschedError

if TYPE_CHECKING:
    from kubesched.api.core_v1 import Pod
    from kubesched.config.features import FeatureGates
    from kubesched.config.types import KubeSchedulerConfiguration
    from kubesched.explain import Explainer, Explanation
    from kubesched.explain.selection import Selection
    from kubesched.state.cluster_state import ClusterState

_DESCRIPTION = """\
Say why a pod is pending, or why it is where it is, by asking every plugin about every node.

The answer comes from the scheduler's own code over the objects of a cluster or a dump; nothing is
written. It works on clusters that kube-scheduler schedules: give its configuration with --config.
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

SHOWN_NODES = 10


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "explain",
        help="say why a pod is pending, or why it is where it is",
        description=_DESCRIPTION,
    )
    kinds = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    pod = kinds.add_parser("pod", help="explain one pod", description=_POD)
    pod.add_argument("name", metavar="NAME", help="the pod; NAMESPACE/NAME works, too")
    pod.add_argument("--node", default="", metavar="NODE", help="tell one node's whole story")
    _add_common(pod)
    pods = kinds.add_parser("pods", help="explain several pods", description=_PODS)
    pods.add_argument("-l", "--selector", default="", metavar="LABELS", help="such as app=web")
    pods.add_argument("-A", "--all-namespaces", action="store_true", help="of every namespace")
    pods.add_argument(
        "--placed", action="store_true", help="placed pods, too (default: pending ones only)"
    )
    _add_common(pods)
    kinds.add_parser("schema", help="print the JSON schema of -o json")


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--namespace", default="", metavar="NAMESPACE", help="its namespace")
    parser.add_argument(
        "--fix", action="store_true", help="look for the smallest changes that make it fit"
    )
    parser.add_argument(
        "--ask-extenders",
        action="store_true",
        help="ask the configuration's extenders, too (default: say that they were not asked)",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="the scheduler's configuration (default: the defaults)"
    )
    add_output(parser, "table", "wide", "json", "yaml")
    add_feature_gates(parser)
    add_state_source(parser)


def main(args: argparse.Namespace) -> int:
    from kubesched.logs import silence

    if args.what == "schema":
        return _print_schema()
    if args.ask_extenders and args.recording is not None and not args.config:
        from kubesched.cli.main import usage_error

        return usage_error("--ask-extenders needs --config: a recording's URLs are not called")
    silence()  # what a scheduler in memory logs about pods is printed here
    if args.what == "pod" and args.recording is not None and not args.config:
        check_state_source(args)
        played = _explain_recorded(args)
        if played is not None:
            return _show(args, played)
    config, gates = _configuration(args)
    state = load_state(args)
    if args.what == "pod":
        return _explain_pod(args, state, config, gates)
    return _explain_pods(args, state, config, gates)


def _print_schema() -> int:
    import json

    from kubesched.explain.model import schema

    print(json.dumps(schema(), indent=2))
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
def _explaining(
    args: argparse.Namespace,
    state: ClusterState,
    config: KubeSchedulerConfiguration,
    gates: FeatureGates,
) -> Iterator[Explainer]:
    """An explainer, with an event loop for questions to extenders if they are to be asked."""
    from kubesched.explain.sources import explainer_of

    if not args.ask_extenders:
        yield explainer_of(state, config, gates=gates)
        return
    import asyncio

    with asyncio.Runner() as runner:
        explainer = explainer_of(state, config, gates=gates, ask_extenders=runner.run)
        try:
            yield explainer
        finally:
            for framework in list(explainer.assembly.frameworks.values())[:1]:
                for extender in framework.handle.extenders:
                    runner.run(extender.aclose())  # type: ignore[attr-defined]  # they are HTTP extenders


# -- one pod ---------------------------------------------------------------------------------------


def _explain_pod(
    args: argparse.Namespace,
    state: ClusterState,
    config: KubeSchedulerConfiguration,
    gates: FeatureGates,
) -> int:
    namespace, name = _key(args)
    pod = _find_pod(state, namespace, name)
    with _explaining(args, state, config, gates) as explainer:
        if args.node and args.node not in explainer.assembly.table.row_of:
            raise KubeschedError(f'node "{args.node}" not found in {state.source}')
        explanation = explainer.explain(pod, _selection(args), fix=args.fix)
    return _show(args, explanation)


def _explain_recorded(args: argparse.Namespace) -> Explanation | None:
    """The pod's attempt that the options mean, if the recording can be played up to it."""
    from kubesched.app.explaining import explain_attempt, find_attempt
    from kubesched.cli.sources import recorded_time
    from kubesched.recording.reader import RecordingReader

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


def _show(args: argparse.Namespace, explanation: Explanation) -> int:
    from kubesched.cli import explain_tables

    if args.output in ("json", "yaml"):
        write_record(args.output, explanation)
    elif args.node:
        explain_tables.print_node(explanation)
    else:
        explain_tables.print_pod(explanation, wide=args.output == "wide")
    return 0


def _key(args: argparse.Namespace) -> tuple[str, str]:
    namespace, slash, name = args.name.removeprefix("pod/").rpartition("/")
    if slash and args.namespace and args.namespace != namespace:
        raise KubeschedError(f"{args.name} and --namespace {args.namespace} contradict each other")
    return namespace or _namespace(args), name


def _namespace(args: argparse.Namespace) -> str:
    """The given one; of a live cluster, else, the context's."""
    if args.namespace or args.from_ or args.recording is not None:
        return args.namespace or "default"
    from kubesched.client.client_config import load_default_config

    return load_default_config(args.kubeconfig, context=args.context).namespace


def _find_pod(state: ClusterState, namespace: str, name: str) -> Pod:
    from kubesched.api.core_v1 import Pod

    pod = state.get(Pod, namespace, name)
    if pod is not None:
        return pod
    elsewhere = sorted(
        {
            candidate.metadata.namespace
            for candidate in state.of(Pod)
            if candidate.metadata.name == name
        }
    )
    hint = f"; there is one in {', '.join(elsewhere)}" if elsewhere else ""
    raise KubeschedError(f'pod "{namespace}/{name}" not found in {state.source}{hint}')


# -- several pods ----------------------------------------------------------------------------------


def _explain_pods(
    args: argparse.Namespace,
    state: ClusterState,
    config: KubeSchedulerConfiguration,
    gates: FeatureGates,
) -> int:
    from kubesched.cli import explain_tables
    from kubesched.explain import selection
    from kubesched.explain.groups import grouped

    pods = _select_pods(args, state)
    if not pods:
        kind = "pods" if args.placed else "pending pods"
        print(f"no {kind} match", file=sys.stderr)
        return 0
    wanted = selection.every_node if args.output in ("json", "yaml") else selection.no_node
    with _explaining(args, state, config, gates) as explainer:
        explanations = [explainer.explain(pod, wanted, fix=args.fix) for pod in pods]
    if args.output in ("json", "yaml"):
        write_record(args.output, explanations)
    else:
        explain_tables.print_groups(grouped(explanations))
    return 0


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
