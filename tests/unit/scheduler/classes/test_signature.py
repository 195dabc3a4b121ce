"""Signatures differ with what plugins may read, and pods of a class hold one copy of theirs."""

from __future__ import annotations

from msgspec import structs

from kubesched.api import codec
from kubesched.api.core_v1 import ContainerStatus, Pod
from kubesched.api.meta import OwnerReference
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import FilterPlugin
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.runtime import Framework
from kubesched.plugins.node_name import NodeName
from kubesched.scheduler.classes import ClassEngine
from kubesched.scheduler.classes.signature import Signature, Signatures, class_signature
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


def owned_pod() -> Pod:
    made = make_pod("p").label("app", "web")
    made.json["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "uid": "u", "name": "one"}]
    return made.build()


def test_a_pod_of_the_same_spec_with_other_labels_gets_its_own_signature() -> None:
    profile, pod = framework(), owned_pod()
    relabelled = structs.replace(pod, metadata=structs.replace(pod.metadata, labels={"app": "db"}))
    assert relabelled.spec is pod.spec
    assert class_signature(profile, pod) != class_signature(profile, relabelled)


def test_pods_of_a_class_hold_one_copy_of_their_signature() -> None:
    profile = framework()
    engine = ClassEngine(profile.handle.table)
    pods = [PodInfo(codec.decode(codec.encode(owned_pod()), Pod)) for _ in range(2)]
    classes = [engine.class_of(profile, pod) for pod in pods]
    assert classes[0] is classes[1] is not None
    assert pods[0].class_key is pods[1].class_key
    assert pods[0].shape_key is pods[1].shape_key


def test_pods_of_the_same_parts_have_one_signature() -> None:
    profile, pod, signatures = framework(), owned_pod(), Signatures()
    first = signatures.of(profile, pod)
    assert first == class_signature(profile, pod)
    other = structs.replace(pod, metadata=structs.replace(pod.metadata, name="q", uid="q"))
    assert signatures.of(profile, other) is first


def test_pods_that_differ_in_any_part_have_signatures_of_their_own() -> None:
    profile, pod, signatures = framework(), owned_pod(), Signatures()
    metas = [
        structs.replace(pod.metadata, labels={"app": "db"}),
        structs.replace(pod.metadata, owner_references=[OwnerReference(name="j", controller=True)]),
        structs.replace(pod.metadata, namespace="other"),
    ]
    others = [structs.replace(pod, metadata=meta) for meta in metas]
    others.append(structs.replace(pod, spec=structs.replace(pod.spec, priority=7)))
    for each in (pod, *others):
        assert signatures.of(profile, each) == class_signature(profile, each)
    assert len({signatures.of(profile, each) for each in (pod, *others)}) == 5


def test_what_the_parts_do_not_tell_is_looked_at_each_time() -> None:
    pod, signatures = owned_pod(), Signatures()
    assert signatures.of(framework(), pod) is not None
    running = [ContainerStatus(name="main")]
    resized = structs.replace(pod, status=structs.replace(pod.status, container_statuses=running))
    assert signatures.of(framework(), resized) is None
    by_tier = framework(ByTier)
    assert signatures.of(by_tier, pod) == class_signature(by_tier, pod)


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


def test_members_of_gangs_that_are_alike_share_answers_but_not_with_single_pods() -> None:
    def of(group: str, *plugins: type[FilterPlugin]) -> Signature:
        made = make_pod("p")
        if group:
            made.spec(schedulingGroup={"podGroupName": group})
        signature = class_signature(framework(*plugins), made.build())
        assert signature is not None
        return signature

    assert of("one").shape == of("other").shape != of("").shape
    assert of("one").whole != of("other").whole
    assert of("one", ByTier).shape != of("other", ByTier).shape, "it may read the group"
