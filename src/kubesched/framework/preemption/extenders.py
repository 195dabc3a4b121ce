"""Extenders in preemption: each receives the candidates that the previous one returned.

A response replaces the candidates as it is, including victim order and number of violations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kubesched.api.core_v1 import Pod
from kubesched.base.errors import KubeschedError
from kubesched.base.logs import get_logger
from kubesched.framework.extenders import Extender, Victims, may_be_skipped
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.preemption.victims import no_victim_on
from kubesched.framework.status import Status, error_status

log = get_logger(__name__)


def interested_in(extenders: Sequence[Extender], pod: Pod) -> list[Extender]:
    """The extenders that take part in preemption for this pod, in call order."""
    return [
        extender
        for extender in extenders
        if extender.supports_preemption and extender.is_interested(pod)
    ]


async def ask_extenders(
    extenders: Sequence[Extender], pod: Pod, victims: Mapping[str, Victims]
) -> Mapping[str, Victims] | Status:
    """The candidates left by the extenders; an Error status if a non-ignorable one fails."""
    for extender in extenders:
        try:
            answer = await extender.process_preemption(pod, victims)
        except KubeschedError as error:
            if not may_be_skipped(extender, error):
                return error_status(error)
            log.info(
                "Skipped extender as it returned error with ignorable flag set",
                extender=extender.name,
                pod=pod,
                err=error,
            )
            continue
        empty = [name for name, proposed in answer.items() if not proposed.pods]
        if empty and not extender.is_ignorable:
            return no_victim_on(empty[0])
        victims = {name: proposed for name, proposed in answer.items() if proposed.pods}
        if not victims:
            break
    return victims


def find_victims(
    table: NodeTable, extender: str, node_name: str, uids: Iterable[str], pdb_violations: int
) -> Victims:
    """Resolve the UIDs in an extender's response.

    Raises:
        KubeschedError: the node, or one of the pods, is unknown.
    """
    row = table.row_of.get(node_name)
    if row is None:
        raise KubeschedError(
            f'extender: {extender} claims to preempt on unknown node "{node_name}"'
        )
    on_node = table.pods[row]
    pods: list[Pod] = []
    for uid in uids:
        pod = on_node.get(uid)
        if pod is None:
            raise KubeschedError(
                f"extender: {extender} claims to preempt pod (UID: &{{{uid}}}) "
                f"on node: {node_name}, "
                "but the pod is not found on that node"
            )
        pods.append(pod.pod)
    return Victims(tuple(pods), pdb_violations)
