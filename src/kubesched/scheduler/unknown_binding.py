"""Resolves a binding with an unknown outcome: the response was lost, or was a server error.

Treating such a binding as failed would give the node's room to another pod although the first may
be there. So the pod is read until it shows the outcome. While it has no node, the binding may still
be in flight (in a buffer, in a slow server); it is sent again where possible: the API server
rejects whichever arrives second, and the outcome is known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from kubesched.api.core_v1 import Pod
from kubesched.api.names import key_of
from kubesched.base.errors import Conflict, KubeschedError, NotFound, ServerError, TransportError
from kubesched.base.logs import get_logger

log = get_logger(__name__)

READS: Final = 150
PAUSE_S: Final = 0.2
MAX_PAUSE_S: Final = 5.0
"""Enough reads for an API server outage of more than ten minutes."""
REPEAT_PAUSES_S: Final = (0.01, 0.05, 0.25)
"""Pauses before a binding is sent again that the server failed to process, as upstream.

After the last one the binding most likely had no effect; the pod is requeued.
"""

ReadNode = Callable[[], Awaitable[str]]
"""The pod's node name, empty without one; NotFound if the pod is gone or was replaced."""
Repeat = Callable[[], Awaitable[KubeschedError | None]]
"""Sends the binding again; returns an error with unknown outcome, raises all others."""


async def resolve_unknown_binding(
    pod: Pod,
    node_name: str,
    cause: KubeschedError,
    read_node: ReadNode,
    sleep: Callable[[float], Awaitable[None]],
    repeat: Repeat | None = None,
    may_repeat: Callable[[], bool] = lambda: True,
) -> None:
    """Return if the pod is on the node after all; otherwise raise the binding's error.

    Raises:
        Conflict: the pod is on another node, or the API server refused the repeated binding.
    """
    refused: Conflict | None = None
    pauses = iter(REPEAT_PAUSES_S)
    is_failing = repeat is not None and isinstance(cause, ServerError)
    pause_s = next(pauses, None) if is_failing else 0.0
    for read in range(READS):
        if pause_s:
            await sleep(pause_s)
        is_last = pause_s is None
        pause_s = min(PAUSE_S * 2 ** (read + 1), MAX_PAUSE_S)
        try:
            current = await read_node()
        except NotFound:
            raise cause from None
        except KubeschedError as error:
            log.warning("Cannot read pod after an unclear binding", pod=pod, err=error)
            continue
        if current == node_name:
            return
        if current and repeat is not None:
            message = f"pod {key_of(pod.metadata)} is already assigned to node {current}"
            raise Conflict(message) from cause
        if refused is not None:
            raise refused
        if repeat is None or is_last or not may_repeat():
            raise cause
        try:
            unclear = await repeat()
        except Conflict as error:
            refused, pause_s = error, 0.0  # the first may have arrived: read the pod once more
        except TransportError as error:
            log.warning("Cannot repeat an unclear binding", pod=pod, err=error)
        else:
            if unclear is None:
                return
            cause = unclear
            if isinstance(unclear, ServerError):
                pause_s = next(pauses, None)
    raise cause
