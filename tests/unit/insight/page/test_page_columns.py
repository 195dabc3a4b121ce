"""The binary form of columns: what the browser's `unpack` reads. The reader is its plain twin."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from page_columns import unpack

from kubesched.insight.page.columns import pack, texts


@given(
    st.text(),
    st.lists(st.integers(-(2**31), 2**31 - 1)),
    st.lists(st.integers(0, 2**53)),
    st.lists(st.booleans()),
)
def test_what_is_packed_is_read_again(title, small, large, flags):
    columns = {
        "small": np.array(small, dtype=np.int32),
        "large": np.array(large, dtype=np.int64),
        "flags": np.array(flags, dtype=np.bool_),
    }
    header, read = unpack(pack({"title": title}, columns))
    assert header == {"title": title}
    assert read["small"].tolist() == small
    assert read["large"].tolist() == large
    assert read["flags"].tolist() == [int(each) for each in flags]


@given(st.lists(st.text()))
def test_texts_stay_apart_whatever_they_hold(values):
    joined = texts(values).tobytes().decode("utf-8", "replace")
    parts = joined.split("\0")
    assert parts.pop() == ""
    assert len(parts) == len(values)
    for part, value in zip(parts, values, strict=True):
        if value.isprintable():
            assert part == value
