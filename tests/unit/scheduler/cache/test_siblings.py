"""Pods that share what was computed for another one count as if it had been computed for them."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from random_clusters import random_pod

from kubesched.api import codec
from kubesched.api.core_v1 import ContainerStatus, Pod, ResourceRequirements
from kubesched.client.informers.sharing import Sharing
from kubesched.framework.nodes.pods import PodInfo, label_key_of
from kubesched.scheduler.cache.siblings import Siblings
from kubesched.testing import make_pod


def decoded(pod: Pod, sharing: Sharing) -> Pod:
    return sharing.share(codec.decode(codec.encode(pod), Pod))


def values(info: PodInfo) -> tuple[object, ...]:
    return (
        info.requests,
        info.nonzero_requests,
        info.host_ports,
        info.affinity_terms,
        info.volume_uses,
        info.label_key or label_key_of(info.pod),
    )


@given(st.integers(0, 2**32))
def test_shared_values_are_those_of_the_pod(seed: int) -> None:
    random, sharing, known = Random(seed), Sharing(), Siblings()
    templates = [random_pod(random, f"t{number}").build() for number in range(4)]
    for number in range(16):
        template = random.choice(templates)
        meta = structs.replace(template.metadata, name=f"p{number}", uid=str(number))
        pod = decoded(structs.replace(template, metadata=meta), sharing)
        info = PodInfo(pod)
        if not known.share(info):
            known.note(info)
        assert values(info) == values(PodInfo(pod))


def pair(change=lambda pod: pod) -> tuple[PodInfo, PodInfo]:
    sharing = Sharing()
    one, other = (
        make_pod("a").cpu("1").label("app", "web"),
        make_pod("b").cpu("1").label("app", "web"),
    )
    return PodInfo(decoded(one.build(), sharing)), PodInfo(change(decoded(other.build(), sharing)))


def resized(pod: Pod) -> Pod:
    actual = ContainerStatus(name="c", resources=ResourceRequirements(requests={"cpu": "4"}))
    return structs.replace(pod, status=structs.replace(pod.status, container_statuses=[actual]))


def test_pods_of_one_template_share() -> None:
    first, second = pair()
    known = Siblings()
    assert not known.share(first)
    known.note(first)
    assert known.share(second)
    assert second.requests is first.requests


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(resized, id="a pod that is being resized"),
        pytest.param(
            lambda pod: structs.replace(
                pod, metadata=structs.replace(pod.metadata, labels={"app": "db"})
            ),
            id="other labels",
        ),
        pytest.param(
            lambda pod: structs.replace(pod, spec=structs.replace(pod.spec, overhead={"cpu": "1"})),
            id="overhead",
        ),
    ],
)
def test_a_pod_that_counts_differently_does_not_share(change) -> None:
    first, second = pair(change)
    known = Siblings()
    known.note(first)
    assert not known.share(second)


def test_templates_are_forgotten_with_their_last_pod() -> None:
    known, infos = Siblings(), [PodInfo(make_pod(name).cpu("1").build()) for name in "abc"]
    for info in infos:
        known.note(info)
    pods = [info.pod for info in infos]
    sharing = PodInfo(pods[2])
    assert known.share(sharing)
    del info, infos
    assert [known.share(PodInfo(pod)) for pod in pods] == [False, False, True]
    assert len(known._by_containers) == 1
