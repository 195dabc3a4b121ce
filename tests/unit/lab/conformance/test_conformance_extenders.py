"""The extenders of sequences: their answers depend on names only, are consistent with each other,
and leave no ties.
"""

import msgspec
import pytest

from kubesched.lab.conformance.extenders import Cluster, question_in_words, reply, subject
from kubesched.lab.conformance.sequences import ExtenderPolicy

NODES = [f"n{number}" for number in range(12)]
KEYS = {"u1": "default/a", "u2": "default/b"}
MEEK = {"metadata": {"namespace": "default", "name": "meek"}, "spec": {"priority": -10}}
BOLD = {"metadata": {"namespace": "default", "name": "bold"}, "spec": {"priority": 10}}
CLUSTER = Cluster(
    find_pod=lambda _namespace, name: {"meek": MEEK, "bold": BOLD}.get(name),
    key_of=KEYS.__getitem__,
)


def policy(**changes):
    return msgspec.structs.replace(ExtenderPolicy("x0", "salt"), **changes)


def about(pod, names=NODES):
    return {"Pod": pod, "Nodes": None, "NodeNames": names}


def whole(pod, names=NODES):
    items = [{"metadata": {"name": name}, "spec": {"podCIDR": "c"}} for name in names]
    return {"Pod": pod, "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}


def test_names_and_whole_nodes_are_filtered_alike():
    rejecting = policy(rejects=40)
    by_name = reply(rejecting, "filter", about(MEEK), CLUSTER).body
    by_node = reply(rejecting, "filter", whole(MEEK), CLUSTER).body
    assert 0 < len(by_name["NodeNames"]) < len(NODES)
    assert [item["metadata"]["name"] for item in by_node["Nodes"]["items"]] == by_name["NodeNames"]
    assert all(item["spec"] == {"podCIDR": "c"} for item in by_node["Nodes"]["items"])
    told = by_name["FailedNodes"] | by_name["FailedAndUnresolvableNodes"]
    assert set(told) == set(NODES) - set(by_name["NodeNames"])
    assert by_name["FailedNodes"]
    assert by_name["FailedAndUnresolvableNodes"]


def test_another_salt_gives_another_opinion():
    one, two = (
        reply(policy(rejects=40, salt=salt), "filter", about(MEEK), CLUSTER) for salt in "ab"
    )
    assert one != two


def test_the_order_of_nodes_can_be_turned_round():
    answer = reply(policy(reverses=True), "filter", about(MEEK), CLUSTER).body
    assert answer["NodeNames"] == NODES[::-1]


@pytest.mark.parametrize("favours", [0, 200])
def test_no_two_nodes_get_the_same_points_below_a_hundred(favours):
    scores = reply(policy(ranks=True, favours=favours), "prioritize", about(BOLD), CLUSTER).body
    assert sorted(score["Score"] % 100 for score in scores) == list(range(len(NODES)))
    assert (max(score["Score"] for score in scores) > 100) == bool(favours)


def test_one_that_does_not_rank_gives_whole_hundreds_to_some_nodes():
    scores = reply(policy(favours=30), "prioritize", about(BOLD), CLUSTER).body
    assert 0 < len(scores) < len(NODES)
    assert all(score["Score"] % 100 == 0 for score in scores)


def test_no_pod_is_evicted_for_a_node_that_would_be_refused():
    chooser = policy(rejects=40, chooses_victims=True)
    victims = {node: {"Pods": [{"UID": "u1"}], "NumPDBViolations": 0} for node in NODES}
    question = {"Pod": BOLD, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    left = reply(chooser, "preempt", question, CLUSTER).body["NodeNameToMetaVictims"]
    assert 0 < len(left) < len(NODES)
    passed = reply(chooser, "filter", about(BOLD, list(left)), CLUSTER).body
    assert passed["NodeNames"] == list(left)


def test_one_that_is_not_asked_about_victims_refuses_no_pod_that_has_some():
    stubborn = policy(rejects=100, fails=100, unbound=100)
    assert reply(stubborn, "filter", about(BOLD), CLUSTER).body["NodeNames"] == NODES
    question = {"PodNamespace": "default", "PodName": "bold", "PodUID": "u", "Node": "n1"}
    assert reply(stubborn, "bind", question, CLUSTER).binds


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        pytest.param({"fails_with_status": True}, 500, id="with a status"),
        pytest.param({}, 200, id="with an error in the answer"),
    ],
)
def test_it_fails_for_meek_pods(changes, status):
    answer = reply(policy(fails=100, **changes), "filter", about(MEEK), CLUSTER)
    assert answer.status == status
    assert answer.body == ({} if changes else {"Error": "x0 does not like meek"})


def test_a_refused_binding_does_not_happen():
    question = {"PodNamespace": "default", "PodName": "meek", "PodUID": "u", "Node": "n1"}
    answer = reply(policy(unbound=100), "bind", question, CLUSTER)
    assert not answer.binds
    assert answer.body == {"Error": "x0 does not bind meek"}
    assert subject("bind", question) == "default/meek"


def test_questions_are_told_with_what_counts():
    meta = {
        "n2": {"Pods": [{"UID": "u2"}, {"UID": "u1"}], "NumPDBViolations": 1},
        "n1": {"Pods": []},
    }
    pods = [{"metadata": {"namespace": "default", "name": name, "uid": "u"}} for name in "ba"]
    full = {"n2": {"Pods": pods, "NumPDBViolations": 1}, "n1": {"Pods": None}}
    for victims in (
        {"NodeNameToMetaVictims": meta, "NodeNameToVictims": None},
        {"NodeNameToVictims": full, "NodeNameToMetaVictims": None},
    ):
        words = question_in_words(policy(), "preempt", {"Pod": BOLD, **victims}, CLUSTER)
        assert words == "x0 preempt n1(0)= n2(1)=default/b+default/a"
    assert question_in_words(policy(), "filter", whole(BOLD, ["n2", "n1"]), CLUSTER) == (
        "x0 filter n2 n1"
    )
    assert question_in_words(policy(), "bind", {"Node": "n1"}, CLUSTER) == "x0 bind n1"
