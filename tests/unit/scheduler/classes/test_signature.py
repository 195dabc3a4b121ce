"""Signatures that are kept for pods of the very same parts are those that encoding each pod gives."""

from __future__ import annotations

from random import Random

from msgspec import structs

from kubesched.api import codec
from kubesched.api.core_v1 import Pod
from kubesched.client.informers.sharing import Sharing
from kubesched.framework.handle import Handle
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.runtime import Framework
from kubesched.plugins.node_name import NodeName
from kubesched.scheduler.classes import signature as module
from kubesched.scheduler.classes.signature import Signatures, class_signature
from kubesched.testing import make_pod


def framework() -> Framework:
    handle = Handle(table=NodeTable(1))
    return Framework(handle, {"filter": [NodeName(None, handle)]}, {})


def random_pod(random: Random, number: int, sharing: Sharing) -> Pod:
    made = make_pod(f"p{number}", namespace=random.choice(["a", "b"]))
    made.cpu(random.choice(["1", "2"])).label("app", random.choice(["web", "db"]))
    owner = random.choice(["", "one", "two"])
    if owner:
        reference = {"kind": "ReplicaSet", "uid": owner, "name": owner, "controller": True}
        made.json["metadata"]["ownerReferences"] = [reference]
    if random.random() < 0.1:
        made.json["status"] = {"containerStatuses": [{"name": "c", "allocatedResources": {}}]}
    return sharing.share(codec.decode(codec.encode(made.build()), Pod))


def test_kept_signatures_are_those_of_the_pods(monkeypatch) -> None:
    monkeypatch.setattr(module, "SIGNED_LIMIT", 5)
    random, sharing, profile = Random(1), Sharing(), framework()
    signatures = Signatures(profile)
    for number in range(500):
        pod = random_pod(random, number, sharing)
        assert signatures.of(pod) == class_signature(profile, pod)
        assert len(signatures._kept) <= 5


def test_a_pod_of_the_same_spec_with_other_labels_gets_its_own_signature() -> None:
    profile = framework()
    signatures = Signatures(profile)
    made = make_pod("p").label("app", "web")
    made.json["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "uid": "u", "name": "one"}]
    pod = made.build()
    relabelled = structs.replace(pod, metadata=structs.replace(pod.metadata, labels={"app": "db"}))
    assert relabelled.spec is pod.spec
    assert signatures.of(pod) != signatures.of(relabelled) == class_signature(profile, relabelled)
    assert signatures.of(pod) == class_signature(profile, pod)
