"""Whatever an API server, or something that poses as one, sends: it is understood, or refused
naming object and field.

`KUBESCHED_FUZZ_EXAMPLES` sets how many examples each test draws.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from json_places import places

from kubesched.api import codec
from kubesched.api.codec import MalformedObject
from kubesched.api.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.api.watch import WatchDecoder
from kubesched.base.errors import ApiError, KubeschedError
from kubesched.client.watch import EventStream

EXAMPLES = int(os.environ.get("KUBESCHED_FUZZ_EXAMPLES", "150"))
KINDS = (Pod, Node, PersistentVolume, PersistentVolumeClaim, PodDisruptionBudget)

POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"a": "b"}, "generation": 1},
    "spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}, "ports": [{}]}],
        "affinity": {"podAffinity": {}, "nodeAffinity": {}},
        "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 3}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z"}],
        "priority": 5,
    },
    "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]},
}

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.sampled_from(["1", "1e999999", "-5", "Exists", "2026-01-01T00:00:00Z"])
)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "spec", "name", "items", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


def with_change(tree: Any, path: tuple[Any, ...], value: object) -> Any:
    changed = deepcopy(tree)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return changed


def refusal_of(decode: Callable[[], object]) -> MalformedObject | None:
    """None if it is understood; anything but a MalformedObject is a failure."""
    try:
        decode()
    except MalformedObject as error:
        return error
    return None


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(KINDS))
def test_arbitrary_bytes_are_refused_or_read(data: bytes, kind: Any) -> None:
    error = refusal_of(lambda: codec.decode(data, kind))
    assert error is None or str(error).startswith(kind.__name__)


@settings(max_examples=EXAMPLES, deadline=None)
@given(TREES, st.sampled_from(KINDS))
def test_arbitrary_json_is_refused_or_read(tree: object, kind: Any) -> None:
    error = refusal_of(lambda: codec.decode(encoded(tree), kind))
    assert error is None or str(error).startswith(kind.__name__)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.sampled_from(places(POD)), TREES)
def test_a_spoilt_pod_is_refused_with_its_name_and_the_field(
    path: tuple[Any, ...], value: object
) -> None:
    spoilt = with_change(POD, path, value)
    error = refusal_of(lambda: codec.decode(encoded(spoilt), Pod))
    if error is not None:
        assert str(error).startswith("Pod")
        if path[0] != "metadata":
            assert "ns/p" in str(error)
            assert error.field.startswith(str(path[0]))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.none() | TREES, min_size=1, max_size=5))
def test_a_list_loses_only_what_makes_no_sense(spoilt: list[object]) -> None:
    good = {"metadata": {"name": "good"}}
    items = [good if item is None else item for item in spoilt]
    told: list[MalformedObject] = []
    result = codec.decode_list(encoded({"items": items}), Pod, told.append)
    assert len(result.items) + len(told) == len(items)
    names = [pod.metadata.name for pod in result.items]
    assert names.count("good") >= items.count(good)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.sampled_from(["ADDED", "MODIFIED", "DELETED"]), TREES)
def test_a_spoilt_event_costs_no_other(event_type: str, spoilt: object) -> None:
    good = {"type": "ADDED", "object": {"metadata": {"name": "good", "resourceVersion": "7"}}}
    lines = [good, {"type": event_type, "object": spoilt}, good]
    stream: EventStream[Pod] = EventStream(Pod)
    events = stream.feed(b"".join(encoded(line) + b"\n" for line in lines))
    assert stream.error is None
    assert [event.object.metadata.name for event in events].count("good") >= 2


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(max_size=120) | TREES.map(encoded))
def test_a_stream_of_nonsense_ends_with_an_error(data: bytes) -> None:
    stream: EventStream[Pod] = EventStream(Pod)
    stream.feed(data + b"\n")
    stream.finish()
    assert stream.error is None or isinstance(stream.error, KubeschedError)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(max_size=200) | TREES.map(encoded))
def test_a_watch_line_is_read_or_refused(line: bytes) -> None:
    with contextlib.suppress(ApiError):  # anything else is a defect
        WatchDecoder(Pod).decode(line)


def test_the_last_word_about_a_spoilt_object_is_heard() -> None:
    gone = {"metadata": {"name": "p", "namespace": "ns"}, "spec": 3}
    event = WatchDecoder(Pod).decode(encoded({"type": "DELETED", "object": gone}))
    assert (event.type, event.object.metadata.name) == ("DELETED", "p")


def test_nesting_without_end_is_refused() -> None:
    for data in (b"[" * 100_000, b'{"a":' * 100_000):
        error = refusal_of(lambda data=data: codec.decode(data, Pod))
        assert error is not None
        assert str(error).startswith("Pod: ")
