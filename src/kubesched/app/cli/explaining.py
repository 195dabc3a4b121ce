"""Implements `kubesched explain`: loads a state, calls an explainer, prints its results."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

import msgspec

from kubesched.api import selectors
from kubesched.api.core_v1 import Pod
from kubesched.app.cli import explain_tables
from kubesched.app.cli.parsing import did_you_mean
from kubesched.app.cli.records import write_record
from kubesched.app.cli.sources import (
    check_state_source,
    load_configuration,
    load_state,
    recorded_time,
)
from kubesched.app.event_loop import run
from kubesched.base.errors import KubeschedError, NotFound
from kubesched.base.logs import silence
from kubesched.client.client_config import load_default_config
from kubesched.config.features import FeatureGates
from kubesched.config.load import load
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.insight.explain import Explainer, Explanation, selection
from kubesched.insight.explain.model import Verdict, schema
from kubesched.insight.explain.selection import Selection
from kubesched.insight.explain.sources import explainer_of
from kubesched.insight.explain.workloads import Workload, ask_cluster, find_workload
from kubesched.insight.recording.reader import RecordingReader
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.live import live_client

SHOWN_NODES = 10


def explain(args: argparse.Namespace) -> int:
    """Explain what the arguments select; returns the exit code."""
    if args.what == "schema":
        print(json.dumps(schema(), indent=2))
        return 0
    if args.what == "attempts":
        return _list_attempts(args)
    if args.what == "podgroup":
        return _explain_group(args)
    if args.what == "pod" and args.recording is not None and not args.config:
        check_state_source(args)
        played = _explain_recorded(args)
        if played is not None:
            return _show(args, played)
    answer = {"pod": _explain_pod, "pods": _explain_pods, "workload": _explain_workload}[args.what]
    config, gates = _configuration(args)
    state = load_state(args)
    return answer(args, state, explainer_of(state, config, gates=gates))


def _list_attempts(args: argparse.Namespace) -> int:
    from kubesched.insight.page.attempts import from_recording

    listed = from_recording(RecordingReader.of_folder(args.recording))
    if args.name:
        pod = args.name if "/" in args.name else f"{args.namespace}/{args.name}"
        known = sorted({attempt.pod for attempt in listed})
        listed = [attempt for attempt in listed if attempt.pod == pod]
        if not listed:
            hint = did_you_mean(pod, known)
            raise KubeschedError(f"{args.recording}: no attempt of pod {pod}{hint}")
    if args.output == "table":
        explain_tables.print_attempts(listed)
    else:
        write_record(args.output, [explain_tables.attempt_fields(attempt) for attempt in listed])
    return 0


def _configuration(args: argparse.Namespace) -> tuple[KubeSchedulerConfiguration, FeatureGates]:
    """Configuration from the options; without `--config`, a recording's own is used."""
    if args.config or args.recording is None:
        return load_configuration(args)
    header = RecordingReader.of_folder(args.recording).segments[-1].header
    gates = header.gates()
    return load(msgspec.json.encode(header.config), args.recording, gates), gates


# -- one pod ---------------------------------------------------------------------------------------


def _explain_pod(args: argparse.Namespace, state: ClusterState, explainer: Explainer) -> int:
    pod = _find_pod(state, *_key(args))
    if args.node and args.node not in explainer.assembly.table.row_of:
        raise KubeschedError(f'node "{args.node}" not found in {state.source}')
    return _show(args, explainer.explain(pod, _selection(args), fix=args.fix), state.notes)


def _explain_recorded(args: argparse.Namespace) -> Explanation | None:
    """The selected attempt of the pod, if the recording can be replayed up to it."""
    from kubesched.app.explaining import explain_attempt, find_attempt  # imports the simulation

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
    if args.node:
        return selection.one_node(args.node)
    if args.output == "table":
        return selection.telling_nodes(SHOWN_NODES)
    return selection.every_node


def _show(args: argparse.Namespace, explanation: Explanation, told: Sequence[str] = ()) -> int:
    """Print an explanation; `told` lists notes already printed."""
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
    """The given namespace; for a live cluster, by default the context's."""
    if args.namespace or _is_stored(args):
        return args.namespace or "default"
    return load_default_config(args.kubeconfig, context=args.context).namespace


def _is_stored(args: argparse.Namespace) -> bool:
    return bool(args.from_) or args.recording is not None


def _find_pod(state: ClusterState, namespace: str, name: str) -> Pod:
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
    return [explainer.explain(pod, selection.every_node, fix=args.fix) for pod in pods]


def _print_groups(
    args: argparse.Namespace, state: ClusterState, explainer: Explainer, pods: Sequence[Pod]
) -> None:
    """Print every distinct explanation; fixes are computed once for each."""
    groups = _grouped([explainer.explain(pod, selection.no_node) for pod in pods])
    if args.fix:
        for group in groups:
            pod = _find_pod(state, *group[0].pod.split("/"))
            group[0] = explainer.explain(pod, selection.no_node, fix=True)
    explain_tables.print_groups(groups, told=state.notes)


def _grouped(explanations: Sequence[Explanation]) -> list[list[Explanation]]:
    """Explanations with equal verdict and reasons, in order of first appearance."""
    groups: dict[object, list[Explanation]] = {}
    for explanation in explanations:
        story = (
            explanation.verdict,
            explanation.preemption is not None,
            tuple((r.plugin, r.reason, r.detail, r.nodes) for r in explanation.reasons),
            tuple((w.code, w.what) for w in explanation.waiting_for),
            explanation.nodes.feasible,
            # A pod's current node matters; which of several equal nodes it would get does not.
            explanation.chosen.node
            if explanation.chosen is not None and explanation.verdict is Verdict.PLACED
            else "",
        )
        groups.setdefault(story, []).append(explanation)
    return list(groups.values())


def _select_pods(args: argparse.Namespace, state: ClusterState) -> Sequence[Pod]:
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


# -- a pod group -----------------------------------------------------------------------------------


def _explain_group(args: argparse.Namespace) -> int:
    config, gates = _configuration(args)
    state = load_state(args)
    told = explainer_of(state, config, gates=gates).explain_group(*_key(args))
    if args.output == "table":
        explain_tables.print_pod_group(told, told=state.notes)
    else:
        write_record(args.output, told)
    return 0


# -- a workload ------------------------------------------------------------------------------------


def _explain_workload(args: argparse.Namespace, state: ClusterState, explainer: Explainer) -> int:
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
    from kubesched.insight.planning.existing_workloads import (
        workload_named,  # imports the controllers
    )

    kind, namespace, name = workload_named(args.workload, _namespace(args), "explain workload")
    workload = find_workload(state.of, kind, namespace, name)
    if not _is_stored(args):

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
