"""Which claims a pod uses, and the words for what is wrong with them."""

import pytest
from dra_objects import claim

from kubesched.plugins.dynamic_resources.claim_lookup import (
    ClaimProblem,
    is_reserved_for,
    pod_claims,
)
from kubesched.testing.builders import make_pod

OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}


def pod(*entries, **status):
    return make_pod("p").uid("uid-p").spec(resourceClaims=list(entries)).status(**status).build()


def named(name):
    return {"name": "entry", "resourceClaimName": name}


TEMPLATE = {"name": "entry", "resourceClaimTemplateName": "t"}


def generated(name):
    return [{"name": "entry", "resourceClaimName": name}]


def lookup(pod, *claims, of_groups=False):
    known = {(each.metadata.namespace, each.metadata.name): each for each in claims}
    return [
        each.metadata.name
        for _, each in pod_claims(pod, lambda *key: known.get(key), of_groups=of_groups)
    ]


def test_claims_come_in_the_pod_s_order():
    assert lookup(pod(named("b"), named("a")), claim("a"), claim("b")) == ["b", "a"]


def test_a_template_s_claim_is_found_by_the_pod_s_status():
    owned = claim("p-entry-1", meta={"ownerReferences": [OWNER]})
    assert lookup(pod(TEMPLATE, resourceClaimStatuses=generated("p-entry-1")), owned) == [
        "p-entry-1"
    ]


def test_a_template_that_gave_no_claim_is_left_out():
    assert lookup(pod(TEMPLATE, resourceClaimStatuses=[{"name": "entry"}])) == []


@pytest.mark.parametrize(
    ("using", "claims", "problem"),
    [
        pytest.param(
            pod(TEMPLATE), [], 'pod "default/p": ResourceClaim not created yet', id="not yet made"
        ),
        pytest.param(
            pod({"name": "entry"}),
            [],
            'pod "default/p", spec.resourceClaim "entry": none of the supported fields are set',
            id="neither name nor template",
        ),
        pytest.param(pod(named("c")), [], 'could not find ResourceClaim "default/c"', id="missing"),
        pytest.param(
            pod(named("c")),
            [claim("c", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})],
            'resourceclaim "c" is being deleted',
            id="being deleted",
        ),
        pytest.param(
            pod(TEMPLATE, resourceClaimStatuses=generated("c")),
            [claim("c", meta={"ownerReferences": [{**OWNER, "uid": "other"}]})],
            "ResourceClaim default/c was not created for Pod default/p (Pod is not owner)",
            id="made for another pod",
        ),
    ],
)
def test_problems(using, claims, problem):
    with pytest.raises(ClaimProblem) as caught:
        lookup(using, *claims)
    assert str(caught.value) == problem


def test_reservations_are_told_by_uid():
    reserved = claim("c", status={"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]})
    assert is_reserved_for(reserved, make_pod("p").uid("u").build())
    assert not is_reserved_for(reserved, make_pod("p").uid("other").build())


# -- groups ----------------------------------------------------------------------------------------

GROUP = {
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "kind": "PodGroup",
    "name": "g",
    "uid": "uid-g",
    "controller": True,
}


def member(*entries):
    statuses = generated("c")
    made = make_pod("p").uid("uid-p").spec(schedulingGroup={"podGroupName": "g"})
    return made.spec(resourceClaims=list(entries)).status(resourceClaimStatuses=statuses).build()


@pytest.mark.parametrize(
    ("owner", "of_groups", "problem"),
    [
        (GROUP, True, ""),
        (GROUP, False, "(Pod is not owner)"),
        ({**GROUP, "name": "h"}, True, "(neither Pod nor PodGroup g is the owner)"),
        ({**GROUP, "apiVersion": "apps/v1"}, True, "(neither Pod nor PodGroup g is the owner)"),
        ({**OWNER}, True, ""),
    ],
)
def test_a_generated_claim_may_be_the_groups(owner, of_groups, problem):
    made = claim("c", meta={"ownerReferences": [owner]})
    if not problem:
        assert lookup(member(TEMPLATE), made, of_groups=of_groups) == ["c"]
        return
    with pytest.raises(ClaimProblem) as caught:
        lookup(member(TEMPLATE), made, of_groups=of_groups)
    assert str(caught.value) == (
        f"ResourceClaim default/c was not created for Pod default/p {problem}"
    )


def test_the_reservation_of_a_group_counts_for_its_pods():
    users = [{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "u"}]
    reserved = claim("c", status={"reservedFor": users})
    assert is_reserved_for(reserved, member(), of_groups=True)
    assert not is_reserved_for(reserved, member())
    assert not is_reserved_for(reserved, pod(), of_groups=True)
