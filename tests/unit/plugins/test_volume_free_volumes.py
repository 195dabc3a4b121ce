"""The kept answer about free volumes is, after any history of volumes and nodes, what looking at all of them gives."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import cluster

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim
from kubesched.framework.handle import Handle
from kubesched.framework.nodes.views import NodeColumns
from kubesched.insight.state.memory import MemoryListers
from kubesched.plugins.helper.volumes.first_match import NONE
from kubesched.plugins.volume_binding.free_volumes import shape_of
from kubesched.plugins.volume_binding.search import candidates
from kubesched.plugins.volume_binding.storage import Storage, facts_of_volume
from kubesched.testing import make_node

SIZES = ("5Gi", "10Gi", "20Gi")
HOSTS = tuple(f"h{at}" for at in range(5))


def volume(rng: Random, name: str, revision: int, key: str = "host") -> PersistentVolume:
    values = rng.sample(HOSTS, rng.choice([1, 1, 1, 2]))
    expression = {"key": key, "operator": "In", "values": values}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": rng.choice(SIZES)},
        "storageClassName": "local",
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
    }
    if rng.random() < 0.2:
        spec["claimRef"] = {"namespace": "default", "name": "other", "uid": "other"}
    if rng.random() < 0.1:
        spec["volumeMode"] = "Block"
    return msgspec.convert(
        {
            "metadata": {"name": name, "resourceVersion": str(revision)},
            "spec": spec,
            "status": {"phase": rng.choice(["Available", "Available", "Released"])},
        },
        PersistentVolume,
    )


def claim(size: str = "10Gi") -> PersistentVolumeClaim:
    return msgspec.convert(
        {
            "metadata": {"namespace": "default", "name": "mine", "uid": "mine"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": size}},
                "storageClassName": "local",
            },
        },
        PersistentVolumeClaim,
    )


SMALL = shape_of(claim("5Gi"))


def looked_up(storage: Storage, wanted: PersistentVolumeClaim, table) -> list[str]:
    free = storage.free_volumes(shape_of(wanted))
    assert free is not None
    choice = free.choice(NodeColumns(table)).tolist()
    return ["" if at == NONE else free.volumes[at].metadata.name for at in choice]


def searched(storage: Storage, wanted: PersistentVolumeClaim, table) -> list[str]:
    reserved, free = candidates(wanted, storage)
    assert not reserved
    found = []
    for node in table.nodes:
        host = (node.metadata.labels or {}).get("host")
        reaching = [f.volume.metadata.name for f in free if host in f.reach.values]
        found.append(reaching[0] if reaching else "")
    return found


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_the_kept_answer_follows_volumes_and_nodes(seed):
    rng = Random(seed)
    table = cluster(*(make_node(f"n{at}").labels(host=rng.choice(HOSTS)) for at in range(3)))
    listers = MemoryListers()
    volumes = listers.of(PersistentVolume)
    for at in range(rng.randrange(6)):
        volumes.put(volume(rng, f"v{at}", 0))
    storage = Storage(Handle(table, listers=listers))
    for step in range(1, 16):
        name = f"v{rng.randrange(8)}"
        known = volumes.get("", name)
        action = rng.random()
        if action < 0.2 and known is not None:
            volumes.remove("", name)
        elif action < 0.4 and known is not None:
            assumed = msgspec.to_builtins(known)
            assumed["spec"]["claimRef"] = {"namespace": "default", "name": "else", "uid": "else"}
            storage.volumes.assume(msgspec.convert(assumed, PersistentVolume))
        elif action < 0.5:
            table.set_node(make_node(f"n{rng.randrange(5)}").labels(host=rng.choice(HOSTS)).build())
        else:
            volumes.put(volume(rng, name, step))
        if rng.random() < 0.7:
            wanted = claim(rng.choice(SIZES))
            assert looked_up(storage, wanted, table) == searched(storage, wanted, table)


def test_numbers_of_volumes_that_are_gone_are_given_up_in_the_end():
    table = cluster(make_node("n0").labels(host="h0"))
    listers = MemoryListers()
    rng = Random(1)
    storage = Storage(Handle(table, listers=listers))
    for step in range(3000):
        listers.of(PersistentVolume).put(volume(rng, "v0", step))
        free = storage.free_volumes(SMALL)
        assert free is not None
        assert len(free.volumes) <= 1100


@pytest.mark.parametrize(
    "spoiler",
    [
        pytest.param({"key": "rack"}, id="another label"),
        pytest.param(None, id="no label at all"),
    ],
)
def test_volumes_of_several_kinds_are_left_to_the_search(spoiler):
    table = cluster(make_node("n0").labels(host="h0"))
    listers = MemoryListers()
    storage = Storage(Handle(table, listers=listers))
    volumes = listers.of(PersistentVolume)

    def available(name: str, key: str = "host") -> PersistentVolume:
        for attempt in range(100):
            found = volume(Random(attempt), name, 0, key)
            if found.spec.claim_ref is None and SMALL.suits(facts_of_volume(found)):
                return found
        raise AssertionError("one of a hundred is available")

    volumes.put(available("v0"))
    assert storage.free_volumes(SMALL) is not None
    if spoiler is None:
        json = msgspec.to_builtins(available("v1"))
        del json["spec"]["nodeAffinity"]
        spoiling = msgspec.convert(json, PersistentVolume)
    else:
        spoiling = available("v1", **spoiler)
    volumes.put(spoiling)
    assert storage.free_volumes(SMALL) is None
    volumes.remove("", "v1")
    assert storage.free_volumes(SMALL) is not None
