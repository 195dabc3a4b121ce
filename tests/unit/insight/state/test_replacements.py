"""Replacement pods and their resource claims."""

from types import SimpleNamespace

import pytest
from dra_objects import claim

from kubesched.api.resource_v1 import POD_CLAIM_NAME_ANNOTATION
from kubesched.insight.state.replacements import with_claims
from kubesched.testing.builders import make_pod


@pytest.mark.parametrize(("kind", "name"), [("Pod", "new-gpu"), ("PodGroup", "old")])
def test_a_new_pod_gets_claims_of_its_own_but_shares_those_of_its_group(kind, name):
    owner = {"apiVersion": "v1", "kind": kind, "name": "x", "uid": "u", "controller": True}
    meta = {"annotations": {POD_CLAIM_NAME_ANNOTATION: "gpu"}, "ownerReferences": [owner]}
    made = []
    world = SimpleNamespace(add=made.append)
    pod = with_claims(world, make_pod("new").uid("uid-new").build(), [claim("old", meta=meta)])
    assert [each.metadata.name for each in made] == ([name] if kind == "Pod" else [])
    (status,) = pod.status.resource_claim_statuses
    assert (status.name, status.resource_claim_name) == ("gpu", name)
