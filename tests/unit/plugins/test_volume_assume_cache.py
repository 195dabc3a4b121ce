"""Assumed objects stand in for listed ones until the watch shows anything newer."""

import pytest
from storage_objects import MemoryListers, claim, volume

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim
from kubesched.plugins.volume_binding.assume_cache import AssumeCache, AssumeError


def caches(*objects):
    listers = MemoryListers(*objects)
    told = []
    return (
        listers,
        AssumeCache(listers.of(PersistentVolume), "persistentvolumes", told.append),
        told,
    )


def test_an_assumed_object_is_what_others_see():
    listed, assumed = volume("v"), volume("v", reserved=("c", "u"))
    _, cache, told = caches(listed)
    assert cache.get("v") is listed
    cache.assume(assumed)
    assert cache.get("v") is assumed
    assert cache.listed("v") is listed
    assert told == [assumed]


def test_a_newer_revision_ends_the_assumption_for_good():
    listers, cache, _ = caches(volume("v"))
    cache.assume(volume("v", reserved=("c", "u")))
    newer = volume("v", version="2")
    listers.put(newer)
    assert cache.get("v") is newer
    cache.restore(newer)
    assert cache.get("v") is newer


def test_deletion_ends_the_assumption():
    listers, cache, _ = caches(volume("v"))
    cache.assume(volume("v", reserved=("c", "u")))
    listers.remove(volume("v"))
    assert cache.get("v") is None


def test_an_unknown_object_cannot_be_assumed():
    _, cache, told = caches()
    with pytest.raises(AssumeError, match='persistentvolumes "v" not found'):
        cache.assume(volume("v"))
    assert told == []


def test_an_object_that_has_moved_on_cannot_be_assumed():
    _, cache, _ = caches(volume("v", version="3"))
    with pytest.raises(AssumeError) as problem:
        cache.assume(volume("v", version="2"))
    assert str(problem.value) == '"v" is out of sync (stored: 3, assume: 2)'


def test_claims_are_told_with_their_namespace():
    listers = MemoryListers()
    cache = AssumeCache(listers.of(PersistentVolumeClaim), "persistentvolumeclaims")
    with pytest.raises(AssumeError, match='persistentvolumeclaims "default/c" not found'):
        cache.assume(claim("c"))


def test_restoring_takes_back_only_what_was_assumed_from_that_revision():
    listed = volume("v")
    _, cache, told = caches(listed)
    assumed = volume("v", reserved=("c", "u"))
    cache.assume(assumed)
    cache.restore(volume("v", version="2"))
    assert cache.get("v") is assumed
    cache.restore(assumed)
    assert cache.get("v") is listed
    assert told == [assumed, listed]
    cache.restore(assumed)
    assert told == [assumed, listed]


def test_a_later_assumption_replaces_an_earlier_one():
    _, cache, _ = caches(volume("v"))
    cache.assume(volume("v", reserved=("c", "u")))
    second = volume("v", reserved=("d", "u"))
    cache.assume(second)
    assert cache.get("v") is second


def test_stale_assumptions_do_not_pile_up():
    listers, cache, _ = caches()
    for number in range(1000):
        name = f"v{number}"
        listers.put(volume(name))
        cache.assume(volume(name, reserved=("c", "u")))
        if number >= 10:
            listers.put(volume(name, version="2"))
    assert len(cache) < 100
    assert cache.get("v5").spec.claim_ref is not None
