"""Prints the explanations of `kubesched explain` as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kubesched.api.times import format_time
from kubesched.app.cli import terminal
from kubesched.app.cli.layout import clean

if TYPE_CHECKING:
    from kubesched.insight.explain import Explanation
    from kubesched.insight.explain.model import (
        DeviceNeed,
        Fix,
        GroupExplanation,
        NodeRow,
        Reason,
        SelectorMatches,
        WokenBy,
    )
    from kubesched.insight.explain.workloads import Workload
    from kubesched.insight.page.attempts import Listed

PODS_NAMED = 5
NODES_NAMED = 3
HOLDERS_SHOWN = 10


def print_pod(explanation: Explanation, *, wide: bool, told: Sequence[str] = ()) -> None:
    """Prints verdict, wait reason, rejections, nodes, fixes and notes, in this order.

    `told` lists notes already printed.
    """
    terminal.heading(f"{explanation.pod}: {explanation.summary}")
    _print_circumstances(explanation)
    print_reasons(explanation.reasons)
    for need in explanation.volumes:
        print()
        of_class = f" (class {need.storage_class})" if need.storage_class else ""
        terminal.sentence(f"Claim {need.claim}{of_class} {'; '.join(need.told)}.")
    _print_devices(explanation.devices)
    _print_choice(explanation)
    if explanation.verdict.value != "Waiting" or explanation.nodes.feasible:
        _print_nodes(explanation, wide=wide)
    if _print_fixes(explanation):
        _print_commands(explanation.fixes or ())
    terminal.notes(note for note in explanation.notes if note not in told)


def _print_circumstances(explanation: Explanation) -> None:
    if explanation.missing is not None:
        print(f"Get them: {clean(explanation.missing.command)}   (and add --from missing.json)")
    if explanation.woken_by:
        terminal.sentence(f"Tried again when {_events(explanation.woken_by)}, and every 5 minutes.")
    if explanation.preemption is not None:
        victims = explanation.preemption.victims
        named = ", ".join(f"{victim.pod} (priority {victim.priority})" for victim in victims)
        budgets = explanation.preemption.violated_budgets
        terminal.sentence(
            f"Would preempt on {explanation.preemption.node}: {named}; "
            f"{budgets or 'no'} disruption budget{'s' if budgets > 1 else ''} violated."
        )
    if explanation.nominated_node:
        terminal.sentence(f"Nominated to {explanation.nominated_node}.")
    condition = explanation.condition
    if condition is not None and condition.status == "False" and explanation.message:
        if condition.message == explanation.message:
            terminal.sentence("The PodScheduled condition says the same.")
        else:
            older = "says" if explanation.missing is not None else "is older"
            terminal.sentence(f"The PodScheduled condition {older}: {condition.message}")
    if explanation.message:
        terminal.sentence(f"Message: {explanation.message}")


def _events(woken_by: Sequence[WokenBy]) -> str:
    *others, last = dict.fromkeys(words for waker in woken_by for words in waker.words)
    return f"{', '.join(others)} or {last}" if others else last


def print_reasons(reasons: Sequence[Reason]) -> None:
    """Prints why nodes were rejected, and by which plugin; nothing if none was."""
    rows = [
        (
            ": ".join(filter(None, (reason.reason.removeprefix("node(s) "), reason.detail))),
            str(reason.nodes),
            str(reason.only_reason),
            reason.plugin,
            reason.remedy,
        )
        for reason in reasons
    ]
    terminal.section(("REASON", "NODES", "ONLY REASON", "PLUGIN", "WHAT WOULD CHANGE IT"), rows)


def _print_devices(needs: Sequence[DeviceNeed]) -> None:
    """Prints, for every request that fails somewhere, what devices there are and who has them."""
    bare = [
        name for need in needs for nodes in need.nodes if not nodes.devices for name in nodes.nodes
    ]
    for need in needs:
        rows = [
            (
                named(nodes.nodes, NODES_NAMED),
                *map(str, (nodes.devices, nodes.of_class, nodes.matching, nodes.free)),
                "never: " * nodes.never + "; ".join(nodes.obstacles),
            )
            for nodes in need.nodes
            if nodes.devices
        ]
        if not rows and need is not needs[0]:
            continue
        print()
        terminal.heading(f"Request {need.request} of claim {need.claim} wants {need.wants}.")
        terminal.sentence(
            f"{need.devices} devices in the cluster, {need.of_class} of class "
            f"{need.device_class}, {need.matching} match, {need.in_use} of these are in use."
        )
        for selector in need.selectors:
            _print_selector(selector)
        terminal.section(("NODES", "DEVICES", "OF CLASS", "MATCH", "FREE", "IN THE WAY"), rows)
        if any(nodes.free < nodes.matching for nodes in need.nodes):
            _print_holders(need)
    if bare:
        print()
        terminal.sentence(f"No devices on {named(list(dict.fromkeys(bare)), NODES_NAMED)}.")


def _print_selector(selector: SelectorMatches) -> None:
    values = "".join(
        f"; {name} here: {', '.join(found) or 'none'}"
        for name, found in selector.values.items()
        if selector.matches < selector.devices
    )
    failed = f"; {selector.error}" if selector.error else ""
    terminal.sentence(
        f"{selector.source}: {selector.expression} matches {selector.matches} of "
        f"{selector.devices}{values}{failed}"
    )


def _print_holders(need: DeviceNeed) -> None:
    shown = need.holders[:HOLDERS_SHOWN]
    rows = [(one.device, one.claim, named(one.pods, NODES_NAMED) or "-") for one in shown]
    terminal.section(("DEVICE IN USE", "CLAIM", "PODS"), rows)
    if need.in_use > len(shown):
        terminal.sentence(f"({need.in_use} devices are in use; -o json lists more of them)")


def named(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _print_choice(explanation: Explanation) -> None:
    chosen = explanation.chosen
    if chosen is None or chosen.rank is None:
        return
    is_best = chosen.rank == 1 and explanation.nodes.feasible > 1
    said = []
    if chosen.decisive:
        said.append(f"Without {_either(chosen.decisive)} another node would win.")
    if chosen.tying:
        said.append(f"Without {_either(chosen.tying)} it would tie with another node.")
    if not said and is_best and not chosen.tied:
        said.append("It would win without any single plugin, too.")
    if said:
        print()
        terminal.sentence(" ".join(said))


def _either(plugins: Sequence[str]) -> str:
    return " or without ".join(plugins)


def _print_nodes(explanation: Explanation, *, wide: bool) -> None:
    matrix = explanation.matrix
    feasible = [row for row in matrix if row.feasible]
    others = [row for row in matrix if not row.feasible]
    if feasible:
        print()
        _print_feasible(feasible, explanation, wide=wide)
    terminal.section(("CLOSEST NODE", "LACKS"), [(row.node, _lacks(row)) for row in others])
    left_out = explanation.nodes.total - len(matrix)
    if matrix and left_out > 0:
        terminal.sentence(f"({left_out} more nodes; -o wide and -o json list all)")


def _print_feasible(rows: Sequence[NodeRow], explanation: Explanation, *, wide: bool) -> None:
    plugins = [
        name
        for name in rows[0].scores
        if wide or len({row.scores[name].weighted for row in rows}) > 1
    ]
    chosen = explanation.chosen.node if explanation.chosen is not None else ""
    listed = [
        (
            f"{row.node} *" if row.node == chosen else row.node,
            "-" if row.rank is None else str(row.rank),
            "-" if row.total is None else str(row.total),
            *(_score(row, name, wide=wide) for name in plugins),
        )
        for row in rows
    ]
    terminal.table(("FEASIBLE NODE", "RANK", "TOTAL", *plugins), listed)
    if not wide and len(plugins) < len(rows[0].scores):
        terminal.sentence("(scores that do not differ between these nodes are left out)")


def _score(row: NodeRow, plugin: str, *, wide: bool) -> str:
    score = row.scores[plugin]
    return f"{score.raw}/{score.normalized}/{score.weighted}" if wide else str(score.weighted)


def _lacks(row: NodeRow) -> str:
    parts = []
    for failure in row.failures:
        rivals = ", ".join(failure.with_nominated)
        suffix = f" (with {rivals}, nominated there)" if rivals else ""
        parts += [f"{text}{suffix}" for text in failure.lacks]
    return "; ".join(dict.fromkeys(parts))


def _print_fixes(explanation: Explanation) -> bool:
    """Prints the possible fixes; returns whether there are any."""
    fixes = explanation.fixes
    if fixes is None or explanation.verdict.value in ("Placed", "Fits"):
        return False  # not requested, or nothing to fix
    if not fixes and explanation.missing is not None:
        return False  # a note says so
    print()
    if not fixes:
        terminal.sentence("Nothing that was tried would help.")
        return False
    terminal.heading("WHAT WOULD HELP (each was tried)")
    rows = []
    for at, fix in enumerate(fixes, 1):
        text = ", ".join(change.text for change in fix.changes)
        rows.append((str(at), text, _result(fix)))
    terminal.table(("", "CHANGE", "RESULT"), rows)
    return True


def _result(fix: Fix) -> str:
    if fix.places is None:
        more = f" and {fix.other_nodes} more" if fix.other_nodes else ""
        return f"fits {fix.node}{more}"
    if fix.wanted == 1:
        return f"places it on {fix.node}"
    return f"places {fix.places} of {fix.wanted}"


def _print_commands(fixes: Sequence[Fix]) -> None:
    """Prints the commands of every fix, unwrapped for copying."""
    for at, fix in enumerate(fixes, 1):
        print()
        for effect in fix.effects:
            print(f"{at}   # {clean(effect)}")
        for command in fix.commands or ["# there is no command for this"]:
            print(f"{at}   {clean(command)}")


def print_node(explanation: Explanation) -> None:
    """Prints one node's explanation in sentences."""
    row = explanation.matrix[0]
    if row.feasible:
        terminal.heading(
            f"{explanation.pod} fits {row.node}: rank {row.rank} of {explanation.nodes.feasible}, "
            f"total {row.total}."
        )
        print()
        scores = [
            (name, str(score.raw), str(score.normalized), str(score.weighted))
            for name, score in row.scores.items()
        ]
        terminal.table(("PLUGIN", "RAW", "NORMALIZED", "WEIGHTED"), scores)
        return
    terminal.heading(f"{explanation.pod} does not fit {row.node}.")
    for failure in row.failures:
        terminal.sentence(f"{failure.plugin} rejects it: {'; '.join(failure.lacks)}.")
        if failure.with_nominated:
            terminal.sentence(
                f"  Only with {', '.join(failure.with_nominated)}, nominated to the node."
            )


def print_groups(groups: Sequence[Sequence[Explanation]], *, told: Sequence[str] = ()) -> None:
    """Prints each distinct explanation once, with fixes for its first pod."""
    has_fixes = False
    for at, group in enumerate(groups):
        if at:
            print()
        first = group[0]
        pods = named([explanation.pod for explanation in group], PODS_NAMED)
        terminal.heading(f"{pods}: {first.summary}")
        if len(group) > 1:
            terminal.sentence(f"({len(group)} pods)")
        print_reasons(first.reasons)
        has_fixes |= _print_fixes(first)
    if has_fixes:
        print()
        terminal.sentence("'kubesched explain pod NAME --fix' prints the commands.")
    notes = (note for group in groups for explanation in group for note in explanation.notes)
    terminal.notes(note for note in notes if note not in told)


def print_workload(workload: Workload) -> None:
    """Prints the number of pods, and why no more are created."""
    terminal.heading(workload.summary())
    is_short = workload.wanted is not None and len(workload.pods) < workload.wanted
    for obstacle in workload.obstacles if is_short else ():
        terminal.sentence(f"No more are made: {obstacle}")
    if is_short and not workload.obstacles:
        terminal.sentence(
            "Nothing is known about why there are not more: no condition and no event tells of it."
        )
    placed = [pod for pod in workload.pods if pod.spec.node_name]
    if not workload.pending:
        rows = [(pod.metadata.name, pod.spec.node_name) for pod in placed]
        terminal.section(("POD", "NODE"), rows)


def print_pod_group(explanation: GroupExplanation, *, told: Sequence[str] = ()) -> None:
    """Prints verdict, members, topology domains, victims, and what would help."""
    terminal.heading(f"{explanation.kind} {explanation.group}: {explanation.summary}")
    if explanation.message:
        terminal.sentence(f"Message: {explanation.message}")
    rows = [(one.pod, one.node or "-", one.lacks or "-") for one in explanation.members]
    terminal.section(("MEMBER", "NODE", "LACKS"), rows)
    listed = [
        (one.name, str(one.nodes), str(one.placed), one.lacks or "-") for one in explanation.domains
    ]
    terminal.section(("DOMAIN", "NODES", "MEMBERS PLACED", "LACKS"), listed)
    if explanation.preemption is not None:
        victims = [(one.pod, str(one.priority)) for one in explanation.preemption.victims]
        terminal.section(("WOULD BE EVICTED", "PRIORITY"), victims)
    if explanation.helps:
        print()
        terminal.heading("WHAT WOULD HELP (each was tried)")
        for help_ in explanation.helps:
            terminal.sentence(help_)
    terminal.notes(note for note in explanation.notes if note not in told)


def print_attempts(listed: Sequence[Listed]) -> None:
    """Prints the attempts of a recording, with their numbers for --at."""
    rows = [
        (
            str(attempt.number or "-"),
            format_time(attempt.time),
            attempt.pod,
            "-" if attempt.attempt is None else str(attempt.attempt),
            attempt.outcome,
            attempt.node or "-",
        )
        for attempt in listed
    ]
    terminal.table(("ATTEMPT", "TIME", "POD", "TRY", "OUTCOME", "NODE"), rows)
    if any(not attempt.number for attempt in listed):
        terminal.notes(["attempts of earlier runs have no number: name a time with --at"])


def attempt_fields(attempt: Listed) -> dict[str, object]:
    """An attempt as a JSON object."""
    return {
        "number": attempt.number or None,
        "time": format_time(attempt.time),
        "pod": attempt.pod,
        "try": attempt.attempt,
        "outcome": attempt.outcome,
        "node": attempt.node,
    }
