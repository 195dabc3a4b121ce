"""The rows of an image, and the history of their number, beside plain ones: a set, and a list that
keeps every entry.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.framework.nodes import images
from kubesched.framework.nodes.images import ImageIndex, ImageState
from kubesched.testing import make_node

NAMES = ["a", "b", "c"]


class PlainState(ImageState):
    """Keeps every entry."""

    __slots__ = ()

    def record(self, version, newest_refresh, oldest_refresh):
        self.versions.append(version)
        self.counts.append(len(self.rows))


sets = st.tuples(st.just("set"), st.integers(0, 7), st.sets(st.sampled_from(NAMES)).map(sorted))
refreshes = st.tuples(st.just("refresh"), st.integers(0, 7), st.just(()))


@given(st.lists(sets | refreshes, max_size=80), st.integers(0, 40))
def test_rows_see_the_counts_of_a_history_that_is_kept_in_full(steps, few):
    """The table grows after the first few steps."""
    index, plain = ImageIndex(4), ImageIndex(4)
    capacity = 4
    for number, (step, any_row, which) in enumerate(steps):
        if number == few:
            capacity = 8
            index.grow(capacity)
            plain.grow(capacity)
        row = any_row % capacity
        for side, state in ((index, ImageState), (plain, PlainState)):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(images, "ImageState", state)
                patch.setattr(images, "_HISTORY_LIMIT", 4)
                perform(side, step, row, which)
        every = slice(0, capacity)
        for name in NAMES:
            short, full = index.get(name), plain.get(name)
            assert (short is None) == (full is None)
            if short is not None and full is not None:
                seen = index.frozen_counts(short, every)
                assert seen.tolist() == plain.frozen_counts(full, every).tolist()
                assert seen.tolist() == [index.count_seen_at(short, at) for at in range(capacity)]
        assert [index.states_of(at) for at in range(capacity)] == [
            plain.states_of(at) for at in range(capacity)
        ]


def perform(index, step, row, which):
    if step == "set":
        made = make_node("node")
        for name in which:
            made = made.image(name, size_bytes=100)
        index.set_row(row, made.build() if which else None)
    else:
        index.refresh_row(row)


def test_a_list_of_nodes_leaves_no_history():
    index = ImageIndex(1_000)
    node = make_node("node").image("a", size_bytes=100).build()
    for row in range(1_000):
        index.set_row(row, node)
    state = index.get("a")
    assert state is not None
    assert len(state.versions) == 2
    index.refresh_row(0)
    assert index.count_seen_at(state, 0) == 1_000


def test_rows_from_before_the_table_grew_hold_on_to_their_history():
    index = ImageIndex(1)
    index.set_row(0, make_node("n0").image("a", size_bytes=1).build())
    index.refresh_row(0)
    index.grow(200)
    for row in range(1, 100):
        index.refresh_row(row)
        index.set_row(row, make_node(f"n{row}").image("a", size_bytes=1).build())
        index.refresh_row(row)
    state = index.get("a")
    assert [index.count_seen_at(state, row) for row in (0, 1, 99)] == [1, 2, 100]
