"""Segments: what is written comes back, and damage anywhere costs at most what lies behind it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.core_v1 import Pod
from kubesched.base.errors import ConfigError
from kubesched.config import features
from kubesched.config.versions import Versions
from kubesched.insight.recording.records import (
    CHANGED,
    STORED,
    Attempt,
    CallDone,
    Decision,
    Entry,
    QueueFlushed,
    Reached,
    difference,
    encode_entries,
    patched,
    restored,
    whole,
)
from kubesched.insight.recording.segments import (
    FORMAT_VERSION,
    MAGIC,
    Header,
    RecordingError,
    SegmentReader,
    SegmentWriter,
)
from kubesched.testing import make_pod

HEADER = Header(
    number=3,
    run=2,
    made_by="0.1.0",
    wall_time=1_767_225_600.0,
    time=17.5,
    attempts=7,
    seed=2**62 + 1,
    config={"kind": "KubeSchedulerConfiguration", "profiles": [{"a": 1}]},
    feature_gates={"A": True},
)
BLOCKS: list[list[Entry]] = [
    [Attempt(1.0, 1, "default/a", "u1"), Decision(1.1, 1, "default/a", "u1", "n1", "", "")],
    [Reached(1.2, "bound", "u1", ["Error", "", "broke", "", "", ""]), QueueFlushed(1.3)],
    [CallDone(1.4, "patch", "x default/a", ["NotFound", "gone", "404", "NotFound"])],
]


def written(blocks: Sequence[Sequence[Entry | tuple[Any, ...]]] = BLOCKS) -> bytes:
    file = io.BytesIO()
    writer = SegmentWriter(file, HEADER)
    for block in blocks:
        writer.write_block(encode_entries(block))
    assert writer.size == len(file.getvalue())
    return file.getvalue()


def read(data: bytes) -> tuple[list[Any], int | None]:
    reader = SegmentReader.open(io.BytesIO(data), "segment")
    entries = list(chain.from_iterable(reader.blocks()))
    return entries, reader.torn_at


def test_what_is_written_comes_back() -> None:
    entries, torn_at = read(written())
    assert entries == [entry for block in BLOCKS for entry in block]
    assert torn_at is None
    assert SegmentReader.open(io.BytesIO(written()), "s").header == HEADER


def test_a_segment_cut_at_any_byte_gives_back_its_whole_blocks() -> None:
    data, seen = written(), set()
    header_end = len(written([]))
    for length in range(len(data)):
        if length < header_end:
            with pytest.raises(RecordingError, match="broken off"):
                read(data[:length])
            continue
        entries, torn_at = read(data[:length])
        ends = [len(written(BLOCKS[:count])) for count in range(len(BLOCKS) + 1)]
        whole_blocks = max(count for count, end in enumerate(ends) if end <= length)
        assert entries == [entry for block in BLOCKS[:whole_blocks] for entry in block]
        assert torn_at == (None if length in ends else ends[whole_blocks])
        seen.add(whole_blocks)
    assert seen == {0, 1, 2}


def test_a_changed_byte_anywhere_is_never_taken_for_data() -> None:
    data, everything = written(), [entry for block in BLOCKS for entry in block]
    for position in range(len(MAGIC) + 2, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        try:
            entries, torn_at = read(bytes(damaged))
        except RecordingError:
            continue  # in the header
        assert torn_at is not None
        assert entries == everything[: len(entries)]


def test_segments_of_a_newer_format_are_refused() -> None:
    data = MAGIC + (FORMAT_VERSION + 1).to_bytes(2, "big") + written()[len(MAGIC) + 2 :]
    with pytest.raises(RecordingError, match="recorded in format 3 by a newer kubesched"):
        read(data)


@pytest.mark.parametrize("data", [b"PK\x03\x04 something else entirely", b"x" * 100])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(RecordingError, match="not a segment of a recording"):
        read(data)


def test_quantities_of_any_size_can_be_written() -> None:
    big = make_pod("a").cpu(2**70).build()
    assert big.spec.containers is not None
    [entry] = read(written([[(STORED, 1.0, "pods", whole(big))]]))[0]
    requests = restored(Pod, entry.parts).spec.containers[0].resources.requests
    assert requests == {"cpu": str(2**70)}


pods = st.builds(
    lambda cpu, label, node, phase: (
        make_pod("a").uid("u").cpu(cpu).label("x", label).on(node).status(phase=phase).build()
    ),
    st.sampled_from(("1", "250m")),
    st.text(max_size=3),
    st.sampled_from(("", "n1")),
    st.sampled_from(("Pending", "Running")),
)


@given(pods, pods)
def test_an_update_gives_back_the_new_version(old: Pod, new: Pod) -> None:
    [entry] = read(written([[(STORED, 1.0, "pods", whole(old))]]))[0]
    assert restored(Pod, entry.parts) == old
    [entry] = read(written([[(CHANGED, 1.0, "pods", "u", "k", difference(old, new))]]))[0]
    assert patched(old, entry.parts) == new


def test_a_recording_that_does_not_name_its_release_is_of_1_36() -> None:
    gates = HEADER.gates()  # a gate that kube-scheduler does not have is left out
    assert gates == features.defaults("1.36")


def test_a_recording_has_the_versions_of_its_gates() -> None:
    given = features.parse("DRAExtendedResource=false", Versions(emulated="1.36"))
    header = msgspec.structs.replace(
        HEADER,
        feature_gates={name: on for name, _, on in given.states()},
        reference_version="1.37",
        emulated_version="1.36",
        min_compatibility_version="1.35",
    )
    assert header.gates() == given
    with pytest.raises(ConfigError, match="not one of the known releases"):
        msgspec.structs.replace(HEADER, reference_version="1.99").gates()
