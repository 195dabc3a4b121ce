"""The verdict in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.insight.explain.model import Chosen, NodeCounts, Preemption, Verdict, WaitingFor


def summary_of(
    verdict: Verdict,
    nodes: NodeCounts,
    waits: Sequence[WaitingFor],
    chosen: Chosen | None,
    preemption: Preemption | None,
    group: str = "",
) -> str:
    """One or two sentences, beginning with the verdict; `group` says what its pod group lacks."""
    if verdict is Verdict.PLACED and chosen is not None:
        return _placed(chosen, nodes)
    if verdict is Verdict.WAITING:
        listed = "; ".join(
            f"{wait.what} ({wait.plugin})" if wait.plugin else wait.what for wait in waits
        )
        then = f" {_of(nodes)} would take it otherwise." if nodes.feasible else ""
        return f"waiting: {listed}.{then}"
    if verdict is Verdict.FITS and chosen is not None:
        return _fits(chosen, nodes)
    if not nodes.total:
        return "not now. There are no nodes."
    if verdict is Verdict.NEVER:
        return (
            f"never. {_none(nodes)} could take it "
            "even if it were empty, untainted and not cordoned."
        )
    if group:
        return f"not now. {_of(nodes)} would take it alone; {group}"
    if nodes.feasible:  # the filters pass, but another step failed
        return "not now. The attempt fails with an error and is repeated after a pause."
    if preemption is not None:
        count = len(preemption.victims)
        pods = "1 pod" if count == 1 else f"{count} pods"
        return (
            f"not now. {_none(nodes)} takes it; "
            f"the scheduler would evict {pods} from {preemption.node}."
        )
    return (
        f"not now. {_none(nodes)} takes it; it is tried again when something changes that can help."
    )


def _placed(chosen: Chosen, nodes: NodeCounts) -> str:
    if chosen.rank is None:
        return f"placed on {chosen.node}, which would not take it now."
    standing = f"rank {chosen.rank} of {nodes.feasible} feasible nodes, total {chosen.total}"
    if chosen.rank == 1 and chosen.tied:
        standing += f", tied with {chosen.tied} other{'s' if chosen.tied > 1 else ''}"
    elif chosen.rank == 1 and chosen.margin is not None:
        standing += f", ahead by {chosen.margin}"
    return f"placed on {chosen.node}: {standing}."


def _fits(chosen: Chosen, nodes: NodeCounts) -> str:
    if chosen.rank is None or chosen.rank > 1:
        return (
            f"fits. {_of(nodes)} would take it; "
            f"{chosen.node} is tried first, as it is nominated there."
        )
    if chosen.tied:
        return (
            f"fits. {_of(nodes)} would take it; "
            f"{chosen.tied + 1} share the highest total, {chosen.total}."
        )
    return (
        f"fits. {_of(nodes)} would take it; "
        f"{chosen.node} is the best with a total of {chosen.total}."
    )


def _of(nodes: NodeCounts) -> str:
    return f"{nodes.feasible} of {nodes.total} nodes"


def _none(nodes: NodeCounts) -> str:
    return f"No node of {nodes.total}"
