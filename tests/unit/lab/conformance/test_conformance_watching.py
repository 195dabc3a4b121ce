"""What a player sees: waiting that survives a pause of the player, claims that are answered
once.
"""

import asyncio

import msgspec

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim
from kubesched.lab.conformance.watching import Patience, Volumes

SELECTED = {"volume.kubernetes.io/selected-node": "n1"}


class Clock:
    def __init__(self):
        self.now = 100.0

    def time(self):
        return self.now


async def test_a_pause_of_the_player_does_not_use_its_patience_up(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: clock)
    patience = Patience(10.0)
    clock.now += 3600.0
    assert not patience.is_over()
    for _ in range(8):
        assert not patience.is_over()
        clock.now += 1.0
    assert patience.is_over()


class Client:
    def __init__(self):
        self.posted, self.patched = [], []

    async def post_raw(self, path, body):
        self.posted.append((path, msgspec.json.decode(body)))

    async def patch(self, kind, name, namespace, patch):
        self.patched.append((name, namespace, msgspec.json.decode(patch.body)))


def claim(**annotations):
    document = {
        "metadata": {
            "name": "data",
            "namespace": "default",
            "uid": "u1",
            "annotations": annotations,
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    return msgspec.convert(document, PersistentVolumeClaim)


async def test_a_claim_with_a_chosen_node_gets_a_volume_there_and_is_bound_to_it():
    client = Client()
    volumes = Volumes(client)
    await volumes.take_claim("ADDED", claim())
    assert client.posted == []
    await volumes.take_claim("MODIFIED", claim(**SELECTED))
    await volumes.take_claim("MODIFIED", claim(**SELECTED))
    ((path, made),) = client.posted
    assert path == "/api/v1/persistentvolumes"
    (term,) = made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["n1"]
    for kind in ("ADDED", "MODIFIED"):
        await volumes.take_volume(kind, msgspec.convert(made, PersistentVolume))
    ((name, namespace, change),) = client.patched
    assert (name, namespace) == ("data", "default")
    assert change["spec"] == {"volumeName": "made-default-data"}
    assert volumes.bound == ["data=made-default-data"]
