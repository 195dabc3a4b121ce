"""Equal parts of pods are kept once, and only as many as the limit allows. That nothing changes is
tested with states.
"""

from __future__ import annotations

import pytest
from msgspec import structs

from kubesched.api import codec
from kubesched.api.core_v1 import Pod
from kubesched.client.informers import sharing as module
from kubesched.client.informers.sharing import Sharing
from kubesched.testing import make_pod


def decoded(name: str, sharing: Sharing, owner: str = "", **spec: object) -> Pod:
    made = make_pod(name).cpu("1").label("app", "web")
    made.json["spec"] |= spec
    if owner:
        made.json["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "uid": owner}]
    return sharing.share(codec.decode(codec.encode(made.build()), Pod))


def with_token(letters: str) -> list[dict[str, object]]:
    return [{"name": f"kube-api-access-{letters}", "projected": {"defaultMode": 420}}]


def test_pods_whose_token_volumes_have_random_names_share_their_volumes() -> None:
    sharing = Sharing()
    one, other = (
        decoded(letters, sharing, owner="set", volumes=with_token(letters))
        for letters in ("x7k2p", "9fqzt")
    )
    assert one.spec.volumes is other.spec.volumes
    assert one.spec.volumes is not None
    assert one.spec.volumes[0].projected is not None


def test_other_volumes_keep_their_names() -> None:
    volumes = [{"name": "kube-api-access-mine", "emptyDir": {}}]
    pod = decoded("p", Sharing(), volumes=volumes)
    assert pod.spec.volumes is not None
    assert pod.spec.volumes[0].name == "kube-api-access-mine"


def test_pods_of_different_owners_share_equal_parts() -> None:
    sharing = Sharing()
    one, other = decoded("a", sharing, owner="one"), decoded("b", sharing, owner="two")
    assert one.spec.containers is other.spec.containers
    assert one.metadata.owner_references != other.metadata.owner_references


def test_the_memory_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(module, "BYTES_LIMIT", 300)
    sharing = Sharing()
    for number in range(50):
        volumes = [{"name": f"v{number}", "emptyDir": {}}]
        decoded(f"p{number}", sharing, owner=f"o{number}", volumes=volumes)
    for parts in sharing._known.values():
        assert 0 < sum(map(len, parts)) == parts.held <= 300


def test_pods_that_came_and_went_leave_a_megabyte_of_each_part() -> None:
    """An encoded part takes about as much again decoded."""
    sharing = Sharing()
    for number in range(1500):
        image = f"registry.example/app-{number}:" + 1000 * "v"
        decoded(f"p{number}", sharing, containers=[{"name": "main", "image": image}])
    assert {name: len(parts) < 1100 for name, parts in sharing._known.items()} == dict.fromkeys(
        sharing._known, True
    )


def bound_to(node_name: str, sharing: Sharing, name: str = "p", **spec: object) -> Pod:
    return decoded(name, sharing, owner="set", nodeName=node_name, **spec)


def test_pods_of_one_owner_share_their_whole_spec_and_status() -> None:
    sharing = Sharing()
    one, other = decoded("a", sharing, owner="set"), decoded("b", sharing, owner="set")
    assert one.spec is other.spec
    assert one.status is other.status
    assert one.metadata is not other.metadata


@pytest.mark.parametrize("notes", [None, {"a": "1"}, {"a": "2"}])
@pytest.mark.parametrize("others", [None, {"a": "1"}])
def test_annotations_are_kept_and_shared_if_they_are_equal(notes, others) -> None:
    def annotated(name: str, annotations: dict[str, str] | None, sharing: Sharing) -> Pod:
        pod = decoded(name, Sharing(), owner="set")
        structs.force_setattr(pod.metadata, "annotations", annotations and dict(annotations))
        return sharing.share(pod)

    sharing = Sharing()
    one, other = annotated("a", notes, sharing), annotated("b", others, sharing)
    assert (one.metadata.annotations, other.metadata.annotations) == (notes, others)
    assert (one.metadata.annotations is other.metadata.annotations) == (notes == others)
    assert one.metadata.labels is other.metadata.labels
    assert one.metadata.owner_references is other.metadata.owner_references


def test_pods_on_different_nodes_share_all_but_their_node() -> None:
    sharing = Sharing()
    one, other, third = (bound_to(node, sharing) for node in ("n1", "n2", "n2"))
    assert [pod.spec.node_name for pod in (one, other, third)] == ["n1", "n2", "n2"]
    assert one.spec.containers is other.spec.containers
    assert other.spec is third.spec


def test_a_spec_that_differs_in_one_field_keeps_it_and_shares_the_rest() -> None:
    sharing = Sharing()
    one, other = bound_to("n1", sharing), bound_to("n2", sharing, priority=7)
    assert (one.spec.priority, other.spec.priority) != (7, one.spec.priority)
    assert (other.spec.priority, other.spec.node_name) == (7, "n2")
    assert one.spec.containers is other.spec.containers


def test_a_spec_that_another_pod_holds_stays_as_it_is() -> None:
    sharing = Sharing()
    bound_to("n1", sharing)
    pod = bound_to("n2", Sharing())
    earlier = structs.replace(pod)
    sharing.share(pod)
    assert earlier.spec.node_name == pod.spec.node_name == "n2"


def test_pods_that_appear_while_others_are_bound_are_compared_and_not_encoded(monkeypatch) -> None:
    sharing = Sharing()
    first = decoded("a", sharing, owner="set")
    bound_to("node-1", sharing, "a")
    monkeypatch.setattr(module, "_encode", None)
    next_one = decoded("b", sharing, owner="set")
    assert next_one.spec is first.spec
    assert next_one.status is first.status
