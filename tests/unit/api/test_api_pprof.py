"""Profiles: values by stack, and what is no profile is refused."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_profiles import number, profile_of

from kubesched.api import pprof
from kubesched.api.protobuf import ProtobufError, bytes_field

STACKS = st.lists(st.sampled_from(["f", "g", "C.m"]), max_size=5).map(tuple)


@given(st.dictionaries(STACKS, st.integers(1, 10**15)))
def test_values_are_read_by_stack(samples):
    assert pprof.decode(profile_of(samples)) == samples


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
