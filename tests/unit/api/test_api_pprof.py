"""CPU profiles: what is written is read back, and what is no profile is refused."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api import pprof
from kubesched.api.protobuf import ProtobufError, bytes_field, varint

PLACES = st.tuples(
    st.sampled_from(["f", "g", "C.m"]), st.sampled_from(["a.py", "b.py"]), st.integers(1, 3000)
)


@given(st.dictionaries(st.lists(PLACES, max_size=5).map(tuple), st.integers(1, 10**6)))
def test_what_is_written_is_read_back_by_function(samples):
    expected = {}
    for stack, count in samples.items():
        names = tuple(name for name, _file, _line in stack)
        expected[names] = expected.get(names, 0) + count * 10_000_000
    assert pprof.decode(pprof.encode(samples, 1.0, 2.0, 100)) == expected


def number(tag, value):
    return varint(tag << 3) + varint(value)


def test_inlined_functions_are_part_of_the_stack():
    """As Go writes them: several lines at one place, and values that are not packed."""
    texts = ["", "samples", "count", "cpu", "nanoseconds", "inner", "outer"]
    parts = [bytes_field(6, text.encode()) for text in texts]
    parts += [
        bytes_field(1, number(1, 1) + number(2, 2)),
        bytes_field(1, number(1, 3) + number(2, 4)),
    ]
    parts += [bytes_field(5, number(1, at) + number(2, 4 + at)) for at in (1, 2)]
    lines = b"".join(bytes_field(4, number(1, at)) for at in (1, 2))
    parts += [bytes_field(4, number(1, 9) + lines)]
    parts += [bytes_field(2, number(1, 9) + number(2, 1) + number(2, 500))]
    assert pprof.decode(gzip.compress(b"".join(parts))) == {("inner", "outer"): 500}


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        pytest.param(b"Could not enable CPU profiling", "not compressed", id="a message"),
        pytest.param(gzip.compress(b""), "no profile of cpu in nanoseconds", id="nothing"),
        pytest.param(gzip.compress(b"\x0a\x7f"), "ends behind its message", id="cut off"),
        pytest.param(gzip.compress(bytes_field(1, number(1, 5))), "not in it", id="a missing text"),
    ],
)
def test_what_is_no_profile_is_refused(data, complaint):
    with pytest.raises(ProtobufError, match=complaint):
        pprof.decode(data)
