"""The fast paths for this process's own writes give what the slow paths give: repeated creates and
computed statuses.
"""

from __future__ import annotations

import random
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubesched.base.clock import ManualClock
from kubesched.base.errors import Conflict, Forbidden
from kubesched.playground.client.events import EventRecorder
from kubesched.playground.client.local import LocalApi
from kubesched.playground.registry.repeated_creates import REMEMBERED_BODIES
from kubesched.playground.storage.store import Entry

TEMPLATE = {
    "metadata": {"generateName": "web-", "labels": {"app": "web"}},
    "spec": {
        "containers": [{"name": "main", "image": "nginx", "resources": {"limits": {"cpu": "1"}}}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "web"}},
                "matchLabelKeys": ["app"],
            }
        ],
    },
}


def entry(api: LocalApi, pod: dict) -> Entry:
    return api.registry.get(api.registry.catalog.get("pods"), "default", pod["metadata"]["name"])


def anonymous(entry: Entry) -> dict:
    obj = deepcopy(entry.obj)
    for field in ("name", "uid", "resourceVersion"):
        del obj["metadata"][field]
    return obj


def test_a_repeated_create_gives_another_of_the_same(api):
    first, second = (api.create("pods", TEMPLATE, "default") for _ in range(2))
    for field in ("name", "uid", "resourceVersion"):
        assert first["metadata"][field] != second["metadata"][field]
    assert anonymous(entry(api, first)) == anonymous(entry(api, second))
    assert entry(api, first).managers == entry(api, second).managers
    assert first["spec"] is second["spec"]
    api.registry.store.check_invariants()


def test_repeated_creates_are_those_of_a_server_that_remembers_nothing():
    def created(is_forgetful: bool) -> list[Entry]:
        api = LocalApi.in_memory(clock=ManualClock(), rng=random.Random(3))
        entries = []
        for _ in range(5):
            caller = api.as_manager("kubesched") if is_forgetful else api
            entries.append(entry(api, caller.create("pods", TEMPLATE, "default")))
        return entries

    for one, other in zip(created(False), created(True), strict=True):
        assert one.obj == other.obj
        assert one.managers == other.managers


def test_what_admission_reads_counts_at_once(api, clock):
    api.create("pods", TEMPLATE, "default")
    body = {"metadata": {"name": "high"}, "value": 1000, "globalDefault": True}
    api.create("priorityclasses.scheduling.k8s.io", body)
    assert api.create("pods", TEMPLATE, "default")["spec"]["priority"] == 1000
    limits = {"limits": [{"type": "Container", "defaultRequest": {"memory": "1Mi"}}]}
    api.create("limitranges", {"metadata": {"name": "l"}, "spec": limits}, "default")
    [container] = api.create("pods", TEMPLATE, "default")["spec"]["containers"]
    assert container["resources"]["requests"]["memory"] == "1Mi"
    clock.advance(1.0)
    before = api.create("pods", TEMPLATE, "default")["metadata"]["creationTimestamp"]
    clock.advance(1.0)
    assert api.create("pods", TEMPLATE, "default")["metadata"]["creationTimestamp"] > before


def test_quotas_count_repeated_creates(api):
    api.create(
        "resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}}, "default"
    )
    quota = api.get("resourcequotas", "default", "q")
    api.update_status(
        "resourcequotas", {**quota, "status": {"hard": {"pods": "2"}, "used": {"pods": "0"}}}
    )
    for _ in range(2):
        api.create("pods", TEMPLATE, "default")
    with pytest.raises(Forbidden):
        api.create("pods", TEMPLATE, "default")


def test_the_memory_of_bodies_is_bounded(api):
    for number in range(REMEMBERED_BODIES + 5):
        body = deepcopy(TEMPLATE)
        body["metadata"]["labels"]["number"] = str(number)
        api.create("pods", body, "default")
    assert len(api._creates._firsts) == REMEMBERED_BODIES


conditions = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["Ready", "Initialized", "ContainersReady"]),
            "status": st.sampled_from(["True", "False"]),
            "lastProbeTime": st.none(),
            "lastTransitionTime": st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"]),
        },
        optional={"reason": st.sampled_from(["A", "B"])},
    ),
    unique_by=lambda condition: condition["type"],
    max_size=3,
)
addresses = st.lists(
    st.sampled_from(["10.0.0.1", "10.0.0.2", "fd00::1"]).map(lambda ip: {"ip": ip}),
    unique_by=lambda item: item["ip"],
    max_size=2,
)
statuses = st.fixed_dictionaries(
    {"phase": st.sampled_from(["Pending", "Running"])},
    optional={
        "conditions": conditions,
        "podIPs": addresses,
        "hostIPs": addresses,
        "podIP": st.sampled_from(["10.0.0.1", "10.0.0.2"]),
        "startTime": st.just("2026-01-01T00:00:00Z"),
    },
)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(["kubelet", "other"]), statuses), max_size=6))
def test_a_computed_status_is_written_as_one_from_outside_is(writes):
    worlds = []
    for is_short in (True, False):
        api = LocalApi.in_memory(clock=ManualClock(), rng=random.Random(1))
        pod = api.create("pods", TEMPLATE, "default")
        for manager, status in writes:
            writer = api.as_manager(manager)
            if is_short:
                pod = writer.write_status("pods", pod, deepcopy(status))
            else:
                pod = writer.update_status("pods", {**pod, "status": status})
        api.registry.store.check_invariants()
        worlds.append(entry(api, pod))
    assert worlds[0].obj == worlds[1].obj
    assert worlds[0].managers == worlds[1].managers


def test_a_status_computed_from_an_old_version_is_refused(api):
    pod = api.create("pods", TEMPLATE, "default")
    api.write_status("pods", pod, {"phase": "Running"})
    with pytest.raises(Conflict):
        api.write_status("pods", pod, {"phase": "Failed"})


@pytest.mark.parametrize("host", ["", "node-0"])
@pytest.mark.parametrize("resource", ["pods", "nodes"])
def test_a_composed_event_is_what_a_server_makes_of_its_json(host, resource):
    def written(is_short: bool) -> list[Entry]:
        api = LocalApi.in_memory(clock=ManualClock(), rng=random.Random(5))
        if not is_short:
            api.create_composed = api.create
        recorder = EventRecorder(api, api.registry.clock)
        body = {"metadata": {"name": "n"}} if resource == "nodes" else TEMPLATE
        about = api.create(resource, body, None if resource == "nodes" else "default")
        for number in range(3):
            recorder.normal(about, "kubelet", "Pulled", f"image {number}", host=host)
        recorder.warning(about, "kubelet", "Failed", "no", host=host, field_path="spec.containers")
        return list(api.registry.store.collection("events").entries())

    for short, plain in zip(written(True), written(False), strict=True):
        assert short.obj == plain.obj
        assert short.managers == plain.managers
