"""Proves that the keyed heap orders like sorting does, under any sequence of adds, replacements,
removals and pops.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubesched.scheduler.queue.active import rank_by
from kubesched.scheduler.queue.heap import KeyedHeap, RankedByLess


class Member:
    def __init__(self, name, rank):
        self.name = name
        self.rank = rank


keys = st.sampled_from("abcdefgh")
ranks = st.integers(0, 3)
operations = st.one_of(
    st.tuples(st.just("add"), keys, ranks),
    st.tuples(st.just("replace"), keys, ranks),
    st.tuples(st.just("remove"), keys),
    st.tuples(st.just("pop")),
)


def heap_by_key():
    return KeyedHeap(lambda member: member.rank)


def heap_by_less():
    return KeyedHeap(lambda member: RankedByLess(lambda a, b: a.rank < b.rank, member))


def run(heap, steps):
    """Apply steps to the heap and to a plain list; they must agree after each."""
    model: list[Member] = []  # in order of arrival
    for operation, *arguments in steps:
        if operation == "add":
            key, rank = arguments
            member = Member(key, rank)
            model = [other for other in model if other.name != key] + [member]
            heap.put(key, member)
        elif operation == "replace":
            key, rank = arguments
            replaced = next((other for other in model if other.name == key), None)
            if replaced is None:
                continue
            member = Member(key, rank)
            if rank == replaced.rank:
                model[model.index(replaced)] = member
            else:
                model = [other for other in model if other is not replaced] + [member]
            heap.put_newer(key, member)
        elif operation == "remove":
            (key,) = arguments
            expected = next((other for other in model if other.name == key), None)
            model = [other for other in model if other is not expected]
            assert heap.remove(key) is expected
        else:
            expected = min(model, key=lambda member: member.rank, default=None)
            model = [other for other in model if other is not expected]
            assert heap.peek() is expected
            assert heap.pop() is expected
        heap.check_invariants()
        assert len(heap) == len(model)
        assert all(heap.get(member.name) is member and member.name in heap for member in model)
        assert {member.name for member in heap} == {member.name for member in model}
    rest = sorted(model, key=lambda member: member.rank)
    assert heap.in_order() == rest
    assert [heap.pop() for _ in rest] == rest
    assert heap.pop() is None
    assert heap.peek() is None


@given(st.lists(operations, max_size=80))
def test_heap_with_a_sort_key_behaves_like_a_stable_sort(steps):
    run(heap_by_key(), steps)


@given(st.lists(operations, max_size=80))
def test_heap_with_a_less_function_behaves_the_same(steps):
    run(heap_by_less(), steps)


def test_leftovers_of_removed_members_do_not_pile_up():
    heap = heap_by_key()
    for number in range(10_000):
        heap.put("same", Member("same", number % 7))
        heap.put(str(number), Member(str(number), number))
        heap.remove(str(number))
        assert len(heap._heap) <= 2 * len(heap) + 64
    heap.check_invariants()


def test_a_queue_sort_plugin_without_sort_key_is_asked_by_less(make_world):
    class ByNameBackwards:
        def less(self, a, b):
            return a.pod_info.name > b.pod_info.name

    world = make_world(queue_sort=ByNameBackwards())
    for name in ("b", "d", "a", "c"):
        world.add(name)
    assert world.drain() == ["d", "c", "b", "a"]


def test_a_plugin_that_inherits_an_empty_sort_key_is_asked_by_less():
    from kubesched.framework.interfaces import QueueSortPlugin

    class ByLess(QueueSortPlugin):
        name = "ByLess"

        def less(self, a, b):
            return a < b

    class ByKey(ByLess):
        def sort_key(self, info):
            return info

    assert isinstance(rank_by(ByLess(None, None))(3), RankedByLess)
    assert rank_by(ByKey(None, None))(3) == 3


def test_a_plugin_that_overrides_only_less_does_not_inherit_the_sort_key():
    from kubesched.plugins.queue_sort import PrioritySort

    class Backwards(PrioritySort):
        def less(self, a, b):
            return super().less(b, a)

    class Unchanged(PrioritySort):
        """Keeps the key."""

    assert isinstance(rank_by(Backwards(None, None))(3), RankedByLess)
    assert rank_by(Unchanged(None, None)).__func__ is PrioritySort.sort_key


def test_a_heap_without_its_leftovers_keeps_its_order():
    heap, ranks = heap_by_key(), {str(number): number * 37 % 200 for number in range(200)}
    for key, rank in ranks.items():
        heap.put(key, Member(key, rank))
    for number in range(150):
        heap.remove(str(number))
        del ranks[str(number)]
    assert [heap.pop().rank for _ in range(50)] == sorted(ranks.values())
