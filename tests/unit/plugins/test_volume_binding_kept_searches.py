"""The outcome kept for equal claims is, after any history of storage and nodes, that of a search from scratch."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from storage_objects import HOSTNAME
from storage_worlds import CLASSES, NODES, StorageWorlds

from kubesched.api.core_v1 import PersistentVolumeClaim
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.plugin_args import UtilizationShapePoint
from kubesched.framework.handle import Handle
from kubesched.framework.nodes.views import NodeColumns
from kubesched.plugins.helper.volumes.first_match import NONE
from kubesched.plugins.volume_binding.pod_claims import PodClaims
from kubesched.plugins.volume_binding.scoring import CapacityScorer
from kubesched.plugins.volume_binding.search import Search
from kubesched.plugins.volume_binding.storage import Storage

SCORER = CapacityScorer(
    [
        UtilizationShapePoint(utilization=0, score=0),
        UtilizationShapePoint(utilization=100, score=10),
    ]
)


def equal_claims(random: Random, worlds: StorageWorlds) -> dict:
    """A claim that waits for its first consumer, but for its name."""
    json = worlds.claim("template", "default")
    json["spec"].pop("volumeName", None)
    json["spec"]["storageClassName"] = random.choice(CLASSES)
    return json


def change(random: Random, worlds: StorageWorlds) -> None:
    """Also of what `worlds.change` leaves alone: capacities and volumes of one node each, which are kept by node."""
    match random.randrange(3):
        case 0:
            worlds.change()
        case 1:
            worlds.put("capacities", worlds.capacity(f"k{random.randrange(6)}"))
        case 2:
            worlds.put("volumes", local_volume(random, f"local{random.randrange(6)}"))


def local_volume(random: Random, name: str) -> dict:
    node = {"key": HOSTNAME, "operator": "In", "values": [random.choice(NODES)]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [node]}]}}
    return {
        "metadata": {"name": name},
        "spec": {
            "storageClassName": random.choice(CLASSES),
            "capacity": {"storage": random.choice(["1Gi", "8Gi"])},
            "accessModes": ["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"],
            "nodeAffinity": affinity,
        },
        "status": {"phase": random.choice(["Available", "Available", "Released"])},
    }


def described(search: Search, count: int):
    verdicts = search.verdicts()
    matches = [
        (m.claim.metadata.name, [None if at == NONE else m.volumes[at] for at in m.choice.tolist()])
        for m in search.matches
    ]
    provisions = [
        (p.claim.metadata.name, p.where.tolist(), None if p.choice is None else p.choice.tolist())
        for p in search.provisions
    ]
    codes = [0] * count if verdicts is None else verdicts.codes.tolist()
    told = {code: verdicts.describe(code).message for code in set(codes) if code}
    passing = [search.passes(at) for at in range(count)]
    return codes, told, matches, provisions, passing, SCORER.score_nodes(search).tolist()


@pytest.mark.parametrize("seed", range(80))
def test_equal_claims_get_what_a_search_from_scratch_finds(seed: int) -> None:
    random = Random(seed)
    worlds = StorageWorlds(random)
    worlds.is_tidy = True
    worlds.fill()
    for name in list(worlds.world.volumes):
        worlds.remove("volumes", name)
    handle = Handle(worlds.table, listers=worlds.listers, feature_gates=DEFAULT_GATES)
    storage = Storage(handle)
    templates = [equal_claims(random, worlds) for _ in range(3)]
    for number in range(40):
        for _ in range(random.choice([0, 0, 1])):
            change(random, worlds)
        json = msgspec.json.decode(msgspec.json.encode(random.choice(templates)))
        json["metadata"] |= {"name": f"w{number}", "uid": f"w{number}"}
        claims = PodClaims(delayed=[msgspec.convert(json, PersistentVolumeClaim)])
        nodes = NodeColumns(worlds.table)
        found = Search(storage, claims, nodes)
        kept, storage.searches = storage.searches, {}
        expected = Search(storage, claims, nodes)
        storage.searches = kept
        assert described(found, len(nodes)) == described(expected, len(nodes))


def test_the_second_of_two_equal_claims_needs_no_search(monkeypatch) -> None:
    worlds = StorageWorlds(Random(1))
    worlds.put_node(worlds.node("n0"))
    worlds.put("classes", {"metadata": {"name": "fast"}, "provisioner": "csi.example.com"})
    storage = Storage(Handle(worlds.table, listers=worlds.listers, feature_gates=DEFAULT_GATES))
    spec = {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}

    def search(name: str) -> Search:
        json = {"metadata": {"namespace": "default", "name": name}, "spec": spec}
        claim = msgspec.convert(json, PersistentVolumeClaim)
        return Search(storage, PodClaims(delayed=[claim]), NodeColumns(worlds.table))

    assert [p.claim.metadata.name for p in search("a").provisions] == ["a"]
    monkeypatch.setattr(Search, "_serve", None)
    assert [p.claim.metadata.name for p in search("b").provisions] == ["b"]
    worlds.put("drivers", {"metadata": {"name": "csi.example.com"}, "spec": {}})
    with pytest.raises(TypeError):
        search("c")
