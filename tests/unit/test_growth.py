"""Dictionaries that get their keys together grow one after the other, and are none the worse for it."""

from __future__ import annotations

from itertools import pairwise

from kubesched.growth import APART, LARGE, Place, put_apart

KEYS = 100_000


def test_no_two_large_dictionaries_grow_within_a_few_insertions():
    tables: dict[Place, dict[str, int]] = {place: {} for place in Place}
    grown: list[int] = []
    for number in range(KEYS):
        key = f"node-{number}"
        for place, table in tables.items():
            size = table.__sizeof__()
            put_apart(table, key, number, place)
            if table.__sizeof__() != size and number > 2 * LARGE:
                grown.append(number)
    assert len(grown) >= 2 * len(tables)
    gaps = [after - before for before, after in pairwise(grown)]
    assert min(gaps) >= APART // 2


def test_contents_and_order_are_those_of_a_plain_dictionary():
    table: dict[object, int] = {}
    plain: dict[object, int] = {}
    for number in range(KEYS):
        key = (number * 7919) % 60_000  # some come again
        put_apart(table, key, number, Place.NODE_ROWS)
        plain[key] = number
        if number % 5 == 0:
            assert table.pop(number // 2, None) == plain.pop(number // 2, None)
    assert [*table.items()] == [*plain.items()]
