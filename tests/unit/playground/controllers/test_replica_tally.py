"""The running tally of pods equals counting them, after every change of random histories."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kubesched.playground.client.informers import Informer
from kubesched.playground.controllers.pods import count_pods
from kubesched.playground.controllers.replica_tally import ReplicaTally

TEMPLATE = {"app": "web"}

pods = st.builds(
    lambda name, owner, labels, phase, ready, leaving: {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "labels": labels,
            **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if leaving else {}),
            **(
                {"ownerReferences": [{"kind": "ReplicaSet", "uid": owner, "controller": True}]}
                if owner
                else {}
            ),
        },
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    },
    name=st.sampled_from(["a", "b", "c", "d"]),
    owner=st.sampled_from(["", "one", "two"]),
    labels=st.sampled_from([{}, {"app": "web"}, {"app": "web", "zone": "z"}, {"app": "db"}]),
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    ready=st.sampled_from(["True", "False"]),
    leaving=st.booleans(),
)
histories = st.lists(st.tuples(st.booleans(), pods), max_size=30)


@settings(max_examples=200)
@given(histories)
def test_the_tally_equals_a_count_after_every_change(history):
    informer = Informer("pods")
    tally = informer.derive(ReplicaTally)
    assert informer.derive(ReplicaTally) is tally
    for is_deleted, pod in history:
        known = informer.get(f"default/{pod['metadata']['name']}")
        if is_deleted and known is None:
            continue
        kind = "DELETED" if is_deleted else "MODIFIED" if known else "ADDED"
        informer.apply(kind, pod, known)
        for owner in ("one", "two"):
            own = [
                each
                for each in informer
                if (each["metadata"].get("ownerReferences") or [{}])[0].get("uid") == owner
            ]
            assert tally.count(owner, TEMPLATE, lambda _: True) == count_pods(own, TEMPLATE, 0, 0.0)
            web = [each for each in own if each["metadata"]["labels"].get("app") == "web"]
            selected = tally.count(owner, TEMPLATE, lambda labels: ("app", "web") in labels)
            assert selected == count_pods(web, TEMPLATE, 0, 0.0)
            assert tally.label_sets(owner) == {
                frozenset(each["metadata"]["labels"].items()) for each in own
            }


def test_a_tally_made_late_knows_what_exists():
    informer = Informer("pods")
    owner = [{"kind": "ReplicaSet", "uid": "one", "controller": True}]
    metadata = {"name": "a", "uid": "u", "namespace": "default", "ownerReferences": owner}
    informer.apply("ADDED", {"metadata": metadata, "status": {"phase": "Pending"}}, None)
    assert informer.derive(ReplicaTally).count("one", {}, lambda _: True).active == 1
