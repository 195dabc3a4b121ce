"""Caches with a bound on what they hold."""

from __future__ import annotations

import pytest

from kubesched.api import affinity_terms, node_selectors
from kubesched.api.affinity_terms import parse_affinity_terms
from kubesched.api.node_selectors import required_node_affinity
from kubesched.base.sized_cache import SizedCache
from kubesched.plugins.pod_topology_spread import constraints
from kubesched.plugins.pod_topology_spread.constraints import SOFT, own_constraints
from kubesched.testing import make_pod


def test_what_does_not_fit_any_more_empties_the_cache():
    cache = SizedCache[str](limit=10)
    cache.keep("a", 4, "A")
    cache.keep("b", 6, "B")
    assert cache == {"a": "A", "b": "B"}
    cache.keep("c", 1, "C")
    assert cache == {"c": "C"}
    assert cache.held == 1
    cache.clear()
    cache.keep("d", 10, "D")
    assert cache == {"d": "D"}


def test_what_is_too_large_is_not_kept():
    cache = SizedCache[str](limit=10, largest=5)
    cache.keep("a", 5, "A")
    cache.keep("b", 6, "B")
    assert cache == {"a": "A"}


@pytest.mark.parametrize(
    ("known", "spell", "check"),
    [
        (affinity_terms._known, lambda pod, n: pod.pod_anti_affinity(n), parse_affinity_terms),
        (node_selectors._known, lambda pod, n: pod.node_selector(**{n: n}), required_node_affinity),
        (
            constraints._known,
            lambda pod, n: pod.spread(1, n, when=SOFT),
            lambda pod: own_constraints(pod, SOFT, match_label_keys=True),
        ),
    ],
    ids=["affinity", "node selectors", "spread constraints"],
)
def test_pods_with_many_names_leave_little_in_the_caches_of_spellings(known, spell, check):
    """1,024 such pods were kept: 100,000 names, and as many checked selectors."""
    for number in range(200):
        pod = make_pod("p")
        for name in range(100):
            spell(pod, f"example.com/name-{number}-{name}")
        built = pod.build()
        assert check(built) is check(built), "kept"
    assert 0 < known.held <= 256 * 1024
    assert 0 < len(known) < 150
