"""Signatures that are kept for pods of the very same parts are those that encoding each pod gives."""

from __future__ import annotations

from random import Random

import pytest
from msgspec import structs

from kubesched.api import codec
from kubesched.api.core_v1 import Pod
from kubesched.client.informers.sharing import Sharing
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import FilterPlugin
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.runtime import Framework
from kubesched.plugins.node_name import NodeName
from kubesched.scheduler.classes import signature as module
from kubesched.scheduler.classes.signature import Signatures, class_signature
from kubesched.testing import make_pod


def framework(*plugins: type[FilterPlugin]) -> Framework:
    handle = Handle(table=NodeTable(1))
    filters = [plugin(None, handle) for plugin in (NodeName, *plugins)]
    return Framework(handle, {"filter": filters}, {})


class ByTier(FilterPlugin):
    """Names all that it reads: a label. Neither other labels nor the owner tell pods apart."""

    name = "ByTier"

    def class_fields(self, pod: Pod) -> str | None:
        return (pod.metadata.labels or {}).get("tier")


class ReadsMore(ByTier):
    """A subclass may read more than it inherits a name for."""

    name = "ReadsMore"


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


@pytest.mark.parametrize("plugins", [(), (ByTier,)])
def test_kept_signatures_are_those_of_the_pods(monkeypatch, plugins) -> None:
    monkeypatch.setattr(module, "SIGNED_LIMIT", 5)
    random, sharing, profile = Random(1), Sharing(), framework(*plugins)
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


def shape(labels: dict[str, str], *plugins: type[FilterPlugin], claim: str = "data") -> bytes:
    made = make_pod("p").claim(claim)
    for key, value in labels.items():
        made.label(key, value)
    signature = class_signature(framework(*plugins), made.build())
    assert signature is not None
    return signature.shape


def test_a_plugin_that_names_what_it_reads_lets_pods_share_by_spec() -> None:
    web, job = {"tier": "1", "app": "web"}, {"tier": "1", "app": "job"}
    assert shape(web, ByTier) == shape(job, ByTier)
    assert shape(web, ByTier) != shape({**web, "tier": "2"}, ByTier)
    assert shape(web, ReadsMore) != shape(job, ReadsMore)
    assert shape(web, ByTier) != shape(web, ByTier, claim="other"), "it may read names of claims"
