"""Who looked for a volume while it was assumed for another pod, which then gave it back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim
from kubesched.api.storage_v1 import StorageClass
from kubesched.base.errors import Conflict
from kubesched.lab.simulation import storage
from kubesched.lab.simulation.given_back import WatchedVolumeBinding, was_not_told
from kubesched.lab.simulation.workloads import HOSTNAME
from kubesched.plugins.registry import in_tree_registry
from kubesched.plugins.volume_binding import VolumeBinding
from kubesched.testing import Cluster, make_node, make_pod


class Story:
    """One disk in a node of two CPUs, assumed for a pod until the API server refuses to write that."""

    def __init__(self) -> None:
        registry = in_tree_registry()
        registry.unregister(VolumeBinding.name)
        registry.register(VolumeBinding.name, lambda: WatchedVolumeBinding)
        self.world = Cluster(registry=registry)
        self._is_answered = asyncio.Event()

    def begin(self) -> None:
        node = make_node("n1").label(HOSTNAME, "n1").capacity(cpu="2", pods="110")
        self.world.add(node.build())
        wait = ("kubernetes.io/no-provisioner", "WaitForFirstConsumer")
        self.world.put(msgspec.convert(storage.storage_class("local", *wait), StorageClass))
        disk = {**storage.local_volume("disk", "n1"), "status": {"phase": "Available"}}
        self.disk = self.world.put(msgspec.convert(disk, PersistentVolume))
        for name in ("a", "b"):
            self.world.put(msgspec.convert(storage.claim(name, "local"), PersistentVolumeClaim))

        async def refuse(obj: Any) -> Any:
            await self._is_answered.wait()
            raise Conflict(obj.metadata.name)

        self.world.client.update = refuse  # type: ignore[method-assign]  # this client only
        self.world.add(make_pod("first").claim("a").build())
        self.world.settle()

    def search(self, cpu: str = "1") -> None:
        """Another pod looks for a disk."""
        self.world.add(make_pod("second").cpu(cpu).claim("b").build())
        self.world.settle()

    def give_back(self) -> None:
        """The pod that was to have the disk is gone, and does not have it."""
        self.world.delete(self.world.pod("first"))
        self._is_answered.set()
        self.world.settle()

    def is_excused(self) -> bool:
        return was_not_told(self.world.assembly, self.world.pod("second"), self.disk)


def _leave(_story: Story) -> None:
    pass


def _change(story: Story) -> None:
    story.world.put(story.disk)


def _remove(story: Story) -> None:
    story.world.delete(story.disk)


@pytest.mark.parametrize(
    ("since_then", "is_excused"), [(_leave, True), (_change, False), (_remove, False)]
)
def test_a_volume_that_has_changed_since_was_an_event(
    since_then: Callable[[Story], None], is_excused: bool
) -> None:
    story = Story()
    with story.world:
        story.begin()
        story.search()
        story.give_back()
        since_then(story)
        assert story.is_excused() is is_excused


def test_a_volume_that_is_still_assumed_was_not_given_back() -> None:
    story = Story()
    with story.world:
        story.begin()
        story.search()
        assert not story.is_excused()


def test_a_pod_that_has_searched_again_knew_of_the_volume() -> None:
    story = Story()
    with story.world:
        story.begin()
        story.search()
        story.give_back()
        story.world.advance(400)
        assert not story.is_excused()


def test_a_pod_that_lacked_something_else_is_not_excused() -> None:
    story = Story()
    with story.world:
        story.begin()
        story.search(cpu="4")
        story.give_back()
        assert story.world.place_in_queue("second") == "unschedulable"
        assert not story.is_excused()
