"""Which changes of claims and pods bring a rejected pod back."""

import pytest
from dra_objects import allocation, claim

from kubesched.framework.events import Hint
from kubesched.plugins.dynamic_resources.claim_lookup import pod_claims
from kubesched.plugins.dynamic_resources.hints import (
    after_claim_change,
    after_claim_deletion,
    after_pod_change,
    pods_of_claim,
)
from kubesched.testing.builders import make_pod

MINE = claim("c")
ALLOCATED = claim("c", status={"allocation": allocation(("r", "s", "a"))})
OTHER = claim("other", status={"allocation": allocation(("r", "s", "a"))})
POD = make_pod("p").uid("u").spec(resourceClaims=[{"name": "e", "resourceClaimName": "c"}]).build()


def known(*claims):
    by_name = {each.metadata.name: each for each in claims}

    def get(namespace, name):
        return by_name.get(name)

    return lambda pod: pod_claims(pod, get, of_groups=False)


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        pytest.param(None, MINE, Hint.QUEUE, id="its claim was created"),
        pytest.param(None, OTHER, Hint.SKIP, id="another claim was created"),
        pytest.param(OTHER, claim("other"), Hint.QUEUE, id="another claim was deallocated"),
        pytest.param(claim("other"), OTHER, Hint.SKIP, id="another claim was allocated"),
        pytest.param(MINE, ALLOCATED, Hint.QUEUE, id="its claim was allocated"),
        pytest.param(
            MINE, claim("c", meta={"finalizers": ["x"]}), Hint.SKIP, id="nothing but metadata"
        ),
    ],
)
def test_changes_of_claims(old, new, hint):
    assert after_claim_change(POD, old, new, known(MINE)) is hint


def test_a_pod_whose_claims_are_not_there_stays():
    assert after_claim_change(POD, OTHER, claim("other"), known()) is Hint.SKIP


def test_a_pod_comes_back_once_its_generated_claims_are_recorded():
    assert after_pod_change(POD, known(MINE)) is Hint.QUEUE
    assert after_pod_change(POD, known()) is Hint.SKIP


@pytest.mark.parametrize(
    ("annotations", "owner", "hint"),
    [
        ({"resource.kubernetes.io/extended-resource-claim": "true"}, "uid-p", Hint.QUEUE),
        ({"resource.kubernetes.io/extended-resource-claim": "true"}, "uid-other", Hint.SKIP),
        ({}, "uid-p", Hint.SKIP),
    ],
)
def test_a_pod_is_tried_again_once_its_old_special_claim_is_gone(annotations, owner, hint):
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": True}
    gone = claim("c", meta={"annotations": annotations, "ownerReferences": [reference]})
    mine = make_pod("p").uid("uid-p").build()
    assert after_claim_deletion(mine, gone, frees_devices=False) is hint
    assert after_claim_deletion(mine, gone, frees_devices=True) is hint


@pytest.mark.parametrize(
    ("gone", "hint"),
    [
        pytest.param(OTHER, Hint.QUEUE, id="it had devices"),
        pytest.param(MINE, Hint.SKIP, id="it had none"),
        pytest.param(None, Hint.QUEUE, id="its last state is unknown"),
    ],
)
def test_a_deleted_claim_frees_its_devices(gone, hint):
    assert after_claim_deletion(POD, gone, frees_devices=True) is hint
    assert after_claim_deletion(POD, gone, frees_devices=False) is Hint.SKIP


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(ALLOCATED, MINE, id="deallocated"),
        pytest.param(ALLOCATED, None, id="deleted while allocated"),
    ],
)
def test_freed_devices_are_about_all_pods(old, new):
    assert pods_of_claim(old, new) is None


def test_other_changes_of_a_claim_are_about_the_pods_that_use_it():
    template = {"name": "e", "resourceClaimTemplateName": "t"}
    recorded = {"resourceClaimStatuses": [{"name": "e", "resourceClaimName": "c"}]}
    generated = make_pod("g").spec(resourceClaims=[template])
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "s", "uid": "s", "controller": True}
    special = claim("c", meta={"ownerReferences": [reference]})
    for old, new in ((None, special), (special, ALLOCATED), (special, None)):
        concerns = pods_of_claim(old, new)
        assert concerns(POD)
        assert concerns(generated.status(**recorded).build())
        assert not concerns(make_pod("g").spec(resourceClaims=[template]).build())
        assert not concerns(make_pod("x").build())
        assert not concerns(make_pod("p", "other").spec(resourceClaims=[template]).build())
    assert pods_of_claim(special, None)(make_pod("s").uid("s").build())
