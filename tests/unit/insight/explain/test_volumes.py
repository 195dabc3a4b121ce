"""What is said about volume claims, one world for each way they stand, and the changes that
help.
"""

from __future__ import annotations

import pytest
from explaining import explain, explainer
from storage_objects import (
    ZONE,
    capacity,
    claim,
    csi_driver,
    in_zone,
    storage_class,
    topology,
    volume,
)

from kubesched.insight.explain.model import Verdict
from kubesched.testing import make_node, make_pod

WAIT = storage_class("wait", provisioner="csi.example.com", mode="WaitForFirstConsumer")
NOW = storage_class("now", provisioner="csi.example.com", mode="Immediate")


def node(name, zone="a"):
    return make_node(name).capacity(cpu="4", memory="8Gi").label(ZONE, zone)


def told(*objects, fix=False):
    return explain(make_pod("p").claim("data"), node("n"), *objects, fix=fix)


def fixes(*objects):
    return [", ".join(c.text for c in each.changes) for each in told(*objects, fix=True).fixes]


def test_a_missing_claim_is_created_or_the_nearest_name_is_used():
    found = told(WAIT, claim("data-0", storage_class="wait"), fix=True)
    assert found.verdict is Verdict.WAITING
    assert found.volumes[0].told == ["does not exist", "namespace default has data-0"]
    assert [each.changes[0].text for each in found.fixes][:2] == [
        "use claim data-0 instead of data",
        "create claim data of class wait",
    ]
    (command,) = found.fixes[1].commands
    assert command.startswith("kubectl apply -f - <<< '{")
    assert '"storageClassName": "wait"' in command


def test_a_missing_claim_of_an_immediate_class_is_tried_with_the_volume_to_come():
    found = told(NOW, fix=True)
    assert found.fixes[0].changes[0].text == "create claim data of class now"
    assert "tried with the volume that csi.example.com has to create" in found.fixes[0].effects


def test_a_claim_of_the_same_name_in_another_namespace():
    assert told(claim("data", "other")).volumes[0].told == [
        "does not exist",
        "there is one in namespace other",
    ]


def test_a_storage_class_that_does_not_exist():
    found = told(WAIT, claim("data", storage_class="wiat"))
    assert found.volumes[0].told[:3] == [
        "is not bound and wants 1Gi",
        "its storage class wiat does not exist",
        "the nearest name is wait",
    ]
    assert "storage class wait instead of wiat in claim data" in fixes(
        WAIT, claim("data", storage_class="wiat")
    )


def test_a_volume_in_another_zone():
    bound = [
        claim("data", storage_class="wait", volume="pv"),
        volume("pv", reserved=("data", "uid-default-data"), reach=in_zone("b")),
    ]
    found = told(*bound, node("m", "b").unschedulable())
    assert found.volumes[0].told == [
        "is bound to volume pv",
        f"only nodes with {ZONE} In [b] reach it: 1 of 2",
    ]


def test_a_bound_volume_that_does_not_exist():
    found = told(claim("data", storage_class="wait", volume="pv"))
    assert found.volumes[0].told == ["is bound to volume pv, which does not exist"]


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        pytest.param(
            [NOW, claim("data", storage_class="now")],
            "csi.example.com has to create its volume before the pod is tried (Immediate)",
            id="bound at once",
        ),
        pytest.param(
            [
                storage_class(
                    "local", provisioner="kubernetes.io/no-provisioner", mode="WaitForFirstConsumer"
                ),
                claim("data", storage_class="local", size="5Gi"),
                volume("small", storage_class="local", size="1Gi"),
            ],
            "no driver creates volumes for it; free volumes: 1Gi",
            id="no driver",
        ),
        pytest.param(
            [
                WAIT,
                csi_driver(storageCapacity=True),
                claim("data", storage_class="wait", size="50Gi"),
                capacity("c", "wait", {ZONE: "a"}, capacity="20Gi"),
            ],
            "storage that drivers report for the class: 20Gi",
            id="too little capacity",
        ),
        pytest.param(
            [
                storage_class("far", allowedTopologies=[topology(zone=["b"])]),
                claim("data", storage_class="far"),
            ],
            f"the class allows only {ZONE} in [b]",
            id="allowed topologies",
        ),
    ],
)
def test_how_an_unbound_claim_stands(objects, said):
    assert said in told(*objects).volumes[0].told


def test_nothing_is_said_about_claims_that_are_not_in_the_way():
    found = explain(
        make_pod("p").cpu("9").claim("data"), node("n"), WAIT, claim("data", storage_class="wait")
    )
    assert found.volumes == []


def test_explaining_leaves_the_listers_as_they_were():
    pod = make_pod("p").claim("data").build()
    explaining = explainer(pod, node("n"), WAIT)
    assert explaining.explain(pod, fix=True) == explaining.explain(pod, fix=True)
