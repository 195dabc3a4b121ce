"""Extended resources backed by device classes: who serves which, and the requests of the special
claim.
"""

import pytest
from dra_objects import device_class, plain
from msgspec import structs

from kubesched.insight.state.memory import MemoryLister
from kubesched.plugins.dynamic_resources.extended_resource_cache import ExtendedResourceCache
from kubesched.plugins.dynamic_resources.extended_resources import (
    may_be_backed,
    requests_and_mappings,
    special_claim,
)
from kubesched.testing.builders import make_pod

GPU = "example.com/gpu"
IMPLICIT = "deviceclass.resource.kubernetes.io/"


def created(name, resource, day=1):
    made = device_class(name, extendedResourceName=resource)
    stamp = f"2026-01-{day:02}T00:00:00Z"
    return structs.replace(made, metadata=structs.replace(made.metadata, creation_timestamp=stamp))


def mapping(*classes):
    lister = MemoryLister()
    cache = ExtendedResourceCache(lister)
    for each in classes:
        lister.put(each)
    return cache


def owner(cache, resource):
    found = cache.by_resource.get(resource)
    return None if found is None else found.metadata.name


def test_a_class_serves_its_explicit_and_its_implicit_name():
    cache = mapping(created("a", GPU))
    assert owner(cache, GPU) == owner(cache, IMPLICIT + "a") == "a"


def test_the_newer_class_wins_and_the_displaced_one_keeps_its_implicit_name():
    cache = mapping(created("a", GPU, day=1), created("b", GPU, day=2))
    assert owner(cache, GPU) == "b"
    assert owner(cache, IMPLICIT + "a") == "a"


def test_a_class_that_loses_gets_no_name_at_all():
    cache = mapping(created("b", GPU, day=2), created("a", GPU, day=1))
    assert owner(cache, GPU) == "b"
    assert owner(cache, IMPLICIT + "a") is None


def test_of_two_of_the_same_age_the_smaller_name_wins():
    assert owner(mapping(created("a", GPU), created("b", GPU)), GPU) == "a"
    assert owner(mapping(created("b", GPU), created("a", GPU)), GPU) == "a"


def test_a_renamed_or_deleted_class_loses_its_names():
    lister = MemoryLister()
    cache = ExtendedResourceCache(lister)
    lister.put(created("a", GPU))
    lister.put(created("a", "example.com/other"))
    assert owner(cache, GPU) is None
    assert owner(cache, "example.com/other") == "a"
    lister.remove("", "a")
    assert cache.by_resource == {}


@pytest.mark.parametrize(
    ("name", "is_backed"),
    [(GPU, True), (IMPLICIT + "x", True), ("cpu", False), ("hugepages-2Mi", False)],
)
def test_which_names_a_class_can_stand_behind(name, is_backed):
    assert may_be_backed(name) is is_backed


def container(name, **requests):
    return {"name": name, "resources": {"requests": {key: str(v) for key, v in requests.items()}}}


def gpu(name, count, **more):
    return {"name": name, "resources": {"requests": {GPU: str(count), "cpu": "1"}}, **more}


def requests(*containers, init=()):
    pod = make_pod("p").spec(containers=list(containers), initContainers=list(init)).build()
    made, mappings = requests_and_mappings(pod, {GPU: "gpu"})
    return (
        {each.name: each.exactly.count for each in made},
        [(each.container_name, each.request_name) for each in mappings],
    )


def test_each_long_lived_container_gets_devices_of_its_own():
    assert requests(gpu("a", 2), container("b"), gpu("c", 1)) == (
        {"container-0-request-1": 2, "container-2-request-1": 1},
        [("a", "container-0-request-1"), ("c", "container-2-request-1")],
    )


def test_init_containers_use_what_comes_later_anyway():
    assert requests(gpu("a", 2), gpu("b", 1), init=[gpu("i", 3)]) == (
        {"container-1-request-1": 2, "container-2-request-1": 1},
        [
            ("a", "container-1-request-1"),
            ("b", "container-2-request-1"),
            ("i", "container-1-request-1"),
            ("i", "container-2-request-1"),
        ],
    )


def test_of_what_init_containers_need_in_addition_the_largest_serves_all():
    assert requests(gpu("a", 1), init=[gpu("i", 2), gpu("j", 4)]) == (
        {"container-1-request-1": 3, "container-2-request-1": 1},
        [
            ("a", "container-2-request-1"),
            ("i", "container-2-request-1"),
            ("i", "container-1-request-1"),
            ("j", "container-2-request-1"),
            ("j", "container-1-request-1"),
        ],
    )


def test_sidecars_are_long_lived_and_serve_only_init_containers_before_them():
    sidecar = gpu("s", 1, restartPolicy="Always")
    assert requests(gpu("a", 1), init=[sidecar, gpu("i", 1)]) == (
        {"container-0-request-1": 1, "container-2-request-1": 1},
        [
            ("s", "container-0-request-1"),
            ("a", "container-2-request-1"),
            ("i", "container-2-request-1"),
        ],
    )


def test_a_quantity_that_is_no_whole_number_is_ignored():
    assert requests(gpu("a", "500m")) == ({}, [])


def test_the_special_claim_names_its_pod():
    claim = special_claim(make_pod("p").uid("u").build(), "made-up")
    assert plain(claim.metadata) == {
        "name": "<extended-resources>",
        "generateName": "p-extended-resources-",
        "namespace": "default",
        "uid": "made-up",
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
        ],
    }
