"""`kubesched explain`: why a pod is pending, or why it is on its node.

    explain pod NAME         one pod
    explain pods             several, grouped by explanation
    explain workload K/NAME  the pods of a workload, and why it has no more
    explain podgroup NAME    a pod group and its pods
    explain attempts         the attempts of a recording, for --at
    explain schema           the JSON schema of -o json

`explain KIND/NAME` and `explain KIND NAME` mean `explain pod NAME` or `explain workload KIND/NAME`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from kubesched.app.cli.options import add_options, add_output
from kubesched.app.cli.parsing import did_you_mean, usage_error
from kubesched.app.cli.sources import add_configuration, add_state_source

DESCRIPTION = """\
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
Explain the pods of a Deployment, ReplicaSet, StatefulSet, DaemonSet or Job that are pending, and
say why its controller makes no more: a quota, an admission that refuses them, a pause.
"""

_GROUP = """\
Explain a pod group: its pods are tried together, as the scheduler does. It says which of them find
a node, how far they get in each topology domain, what is missing or gated, whom the scheduler would
evict, and what would let the group start. Needs --feature-gates GenericWorkload=true.
"""

_ATTEMPTS = """\
List the scheduling attempts of a recording, oldest first, with the numbers that --at takes.
"""

_SELECTION = """
-l, --selector LABELS {=}  such as app=web
-A, --all-namespaces       of every namespace
--placed                   placed pods, too (default: pending ones only)
"""
_COMMON = """
-n, --namespace NAMESPACE {=}  its namespace
--fix              look for the smallest changes that make it fit
"""
_OF_RECORDING = """
name POD {?}       only of this pod (default: of all)
--recording DIR {!}  the recording
-n, --namespace NAMESPACE {=default}  of POD
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    pod = kinds.add_parser("pod", help="explain one pod", description=_POD)
    add_options(pod, "name NAME  the pod; NAMESPACE/NAME works, too")
    add_options(pod, "--node NODE {=}  tell one node's whole story")
    pods = kinds.add_parser("pods", help="explain several pods", description=_PODS)
    add_options(pods, _SELECTION)
    workload = kinds.add_parser("workload", help="explain a workload", description=_WORKLOAD)
    add_options(workload, "workload KIND/NAME  such as deployment/web")
    group = kinds.add_parser("podgroup", help="explain a pod group", description=_GROUP)
    add_options(group, "name NAME  the group; NAMESPACE/NAME works, too")
    add_options(group, "-n, --namespace NAMESPACE {=}  its namespace")
    add_output(group, "table", "json", "yaml")
    add_configuration(group)
    add_state_source(group)
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
    from kubesched.app.cli.main import parse_and_run
    from kubesched.insight.planning.workload_kinds import KINDS, workload_kind

    word, slash, _ = words[0].partition("/") if words else ("", "", "")
    kind = workload_kind(word)
    if not slash and kind not in (None, "Pod") and (len(words) == 1 or words[1].startswith("-")):
        return usage_error(f"which {kind}? It is 'kubesched explain {word} NAME'")
    if slash and kind is None and not _is_group(word):
        return usage_error(f'unknown kind "{word}"{did_you_mean(word, [*KINDS, "podgroup"])}')
    return parse_and_run(sys.modules[__name__], ["explain", *spelled_out(words)])


def spelled_out(words: Sequence[str]) -> list[str]:
    """Turns `KIND/NAME` or `KIND NAME` into a subcommand and its argument."""
    from kubesched.insight.planning.workload_kinds import workload_kind

    first, *rest = words or [""]
    word, slash, name = first.partition("/")
    if _is_group(word):
        return ["podgroup", *([name] if slash else []), *rest]
    kind = workload_kind(word)
    if kind is None or (not slash and (word in ("pod", "pods") or not rest)):
        return list(words)
    if not slash:
        name, *rest = rest
    return ["pod", name, *rest] if kind == "Pod" else ["workload", f"{word}/{name}", *rest]


def _is_group(word: str) -> bool:
    kind = word.lower().partition(".")[0].removesuffix("s")
    return kind in ("podgroup", "compositepodgroup")


def why() -> int:
    """Entry point of `kubectl-why`: `kubectl why POD` is `kubesched explain pod POD --fix`."""
    from kubesched.app.cli.main import run_process

    return run_process(["explain", *why_words(sys.argv[1:])])


def why_words(words: Sequence[str]) -> list[str]:
    """The words of `explain` for `kubectl why WORD...`."""
    if not words or words[0] in ("-h", "--help"):
        return ["pod", "--help"]
    spelled = spelled_out(words)
    if spelled[0] == "podgroup":
        return spelled
    return [*(spelled if spelled[0] in ("pod", "pods", "workload") else ["pod", *words]), "--fix"]


def main(args: argparse.Namespace) -> int:
    from kubesched.app.cli.explaining import explain

    return explain(args)
