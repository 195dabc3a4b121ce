"""DefaultBinder: binds the pod through the API server.

Mirrors upstream's `defaultbinder/default_binder.go`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kubesched.api.core_v1 import Pod
from kubesched.base.errors import KubeschedError
from kubesched.base.logs import get_logger
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.direct_bind import BindOutcome, DirectBindPlugin
from kubesched.framework.handle import BindingRest, DirectBindingClient, GiveUp, SchedulerClient
from kubesched.framework.status import Status, error_status

log = get_logger(__name__)


class DefaultBinder(DirectBindPlugin):
    """Posts a Binding; a failure becomes an Error status that carries its cause."""

    name = "DefaultBinder"
    _client: SchedulerClient | None = None
    _direct: DirectBindingClient | None = None

    @property
    def binds_directly(self) -> bool:
        client = self.handle.client
        if client is not self._client:
            self._client = client
            self._direct = client if isinstance(client, DirectBindingClient) else None
        return self._direct is not None

    def start_bind(
        self, pod: Pod, node_name: str, done: Callable[[BindOutcome | None], None]
    ) -> GiveUp:
        assert self._direct is not None, "the client cannot bind directly"
        if log.enabled(3):
            log.info("Attempting to bind pod to node", v=3, pod=pod, node=node_name)
        return self._direct.start_binding(
            pod, node_name, lambda rest: done(None if rest is None else partial(_outcome, rest))
        )

    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        client = self.handle.client
        assert client is not None, "DefaultBinder needs a client"
        log.info("Attempting to bind pod to node", v=3, pod=pod, node=node_name)
        return await _outcome(lambda: client.bind_pod(pod, node_name))


async def _outcome(binding: BindingRest) -> Status | None:
    try:
        await binding()
    except KubeschedError as error:
        return error_status(error)
    return None
