"""DefaultBinder: binds the pod through the API server. Mirrors upstream's `defaultbinder/default_binder.go`."""

from __future__ import annotations

from kubesched.api.core_v1 import Pod
from kubesched.errors import KubeschedError
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interfaces import BindPlugin
from kubesched.framework.status import Status, error_status
from kubesched.logs import get_logger

log = get_logger(__name__)


class DefaultBinder(BindPlugin):
    """Posts a Binding; a failure becomes an Error status with its cause."""

    name = "DefaultBinder"

    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        client = self.handle.client
        assert client is not None, "DefaultBinder needs a client"
        log.info("Attempting to bind pod to node", v=3, pod=pod, node=node_name)
        try:
            await client.bind_pod(pod, node_name)
        except KubeschedError as error:
            return error_status(error)
        return None
