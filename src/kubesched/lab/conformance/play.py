"""Plays sequences on a control plane and records the attached scheduler's decisions."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from kubesched.api.core_v1 import PersistentVolume
from kubesched.api.kinds import Kind, kind_of
from kubesched.api.meta import Record
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.base.errors import NotFound
from kubesched.client.patch import merge_patch
from kubesched.client.rest import RestClient
from kubesched.lab.conformance.player import (
    AT_ONCE,
    DECISION_TIMEOUT_S,
    Player,
    PlayResult,
    kind_of_document,
)
from kubesched.lab.conformance.sequences import CONFIGURATION, Json, Step
from kubesched.lab.conformance.sequences import Sequence as Scenario
from kubesched.lab.conformance.watching import Patience, watched
from kubesched.lab.contestants import Contestant, RunningScheduler, running
from kubesched.testing.control_plane import ControlPlane, ControlPlaneError

_POLL_S = 0.01
MAX_REST_S = 15
"""How long a pod may stay unschedulable before it is retried; the default is five minutes."""
_HANDLED = b"scheduler_event_handling_duration_seconds_count{"
_MARKED = b"NodeAnnotation"
"""The event of a node whose annotations have changed, which affects no decision."""

_PROBE: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "probe", "namespace": "default"},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {"example.com/fits": "nowhere"},
        "containers": [{"name": "c", "image": "i"}],
    },
}


async def play(
    plane: ControlPlane,
    contestant: Contestant,
    scenario: Scenario,
    make_player: type[ProcessPlayer],
) -> PlayResult:
    """Create the objects, start the scheduler, play the steps, stop the scheduler, and clean up.

    Raises:
        ControlPlaneError: the scheduler ended, or did not decide in time.
    """
    async with watched(plane.client, with_groups=bool(scenario.gates)) as (pods, volumes):
        player = make_player(plane.client, pods, volumes, scenario)
        try:
            # Before the scheduler starts, so that it knows all objects at its first pod.
            for manifest in scenario.objects:
                await player.create(manifest)
            config = {**scenario.configuration, **CONFIGURATION}
            flags = [f"--pod-max-in-unschedulable-pods-duration={MAX_REST_S}s"]
            gates = scenario.gates
            async with running(contestant, plane, config, gates, flags) as scheduler:
                player.scheduler = scheduler
                await player.until_scheduling()
                for at, step in enumerate(scenario.steps):
                    await player.perform(at, step)
                player.outcome.final = pods.placements()
        finally:
            await wipe(plane.client, scenario)
    return player.outcome


class ProcessPlayer(Player):
    """Plays beside a scheduler's process, whose watches lag behind."""

    binding_timeout_s = 75.0  # both retry sooner (`MAX_REST_S` plus 30 s between flushes)
    scheduler: RunningScheduler | None = None

    async def until_scheduling(self) -> None:
        """Wait until the scheduler has rejected a pod that fits nowhere, so it is running."""
        await self.create(_PROBE)
        step = Step("create", _PROBE)
        await self.first_answer(step)
        await self.delete(step)

    async def until_marks_handled(self, made: int) -> None:
        """Node changes arrive in order and the scheduler counts those it has handled."""
        assert self.scheduler is not None, "nodes are steps"
        patience = Patience(DECISION_TIMEOUT_S)
        while events_handled(await self.scheduler.get("/metrics"), _MARKED) < made:
            self.scheduler.check()
            if patience.is_over():
                raise ControlPlaneError(
                    f"waited {DECISION_TIMEOUT_S:.0f} s for the scheduler to hear of a changed node"
                )
            await asyncio.sleep(_POLL_S)

    async def until_heard(self, kinds: list[type[Record]]) -> None:
        """Each kind has its own watch, and the scheduler does not count changes to these kinds.

        Wait until the API server's watches have them, and after that until the scheduler has
        handled pods twice.
        """
        for record in kinds:
            latest = (await self._client.list(record)).metadata.resource_version
            await self._client.list_page(
                record, resource_version=latest, resource_version_match="NotOlderThan"
            )
        if kinds:
            await self.until_scheduling()
            await self.until_scheduling()

    def check(self) -> None:
        if self.scheduler is not None:
            self.scheduler.check()

    def last_words(self) -> str:
        return self.scheduler.last_words() if self.scheduler is not None else ""


def events_handled(page: bytes, name: bytes) -> int:
    """Number of handled events whose label contains `name`, from a scheduler's metrics."""
    return sum(
        int(float(line.rsplit(b" ", 1)[1]))
        for line in page.splitlines()
        if line.startswith(_HANDLED) and name in line
    )


async def wipe(client: RestClient, scenario: Scenario) -> None:
    """Delete all objects of a sequence except namespaces, which the next sequence relabels."""
    documents = [*scenario.objects, *(step.object for step in scenario.steps)]
    # Volumes and claims are also created on demand.
    kinds: dict[str, Kind[Any]] = {"PersistentVolume": kind_of(PersistentVolume)}
    if any(document["kind"] == "DeviceClass" for document in documents):
        kinds["ResourceClaim"] = kind_of(ResourceClaim)
    kinds |= {
        document["kind"]: kind_of_document(document)
        for document in documents
        if document["kind"] != "Namespace"
    }
    for kind in kinds.values():
        for obj in (await client.list(kind)).items:
            name, namespace = obj.metadata.name, obj.metadata.namespace
            if name == "kubernetes" or name.startswith("system-"):
                continue  # the API server's own objects
            with contextlib.suppress(NotFound):
                if kind.kind in _PROTECTED:
                    change = merge_patch({"metadata": {"finalizers": None}})
                    await client.patch(kind, name, namespace, change)
                await client.delete(kind, name, namespace, AT_ONCE)


_PROTECTED = ("PersistentVolumeClaim", "PersistentVolume", "ResourceClaim")
"""Have a finalizer that no controller removes here."""
