"""The records of a recording, and objects as parts of them.

A record is a MessagePack array whose first element is its tag. Times are the scheduler's monotonic
clock; the segment header maps it to wall-clock time.

An updated object is written as the top-level parts that differ from its previous version (most pod
updates change only the status). Reading needs the previous versions, which a checkpoint provides.

Annotations that scheduling does not read are replaced by a single digest, under a key that is not
stored anywhere: they may hold private data (`kubectl apply` stores the whole manifest in one), and
decisions depend on them only in that any change is an event.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import structs

from kubesched.api.meta import ObjectMeta, Record
from kubesched.insight.state.archive import ANNOTATIONS_READ
from kubesched.scheduler.checkpoint import SchedulerState

Parts = dict[str, Any]
"""Top-level fields of an object by their JSON names."""


# Tags.
STORED: Final = 0
CHECKPOINT_END: Final = 1
CHANGED: Final = 2
ATTEMPT: Final = 3
DECISION: Final = 4
REACHED: Final = 5
CALL_DONE: Final = 6
TIMER_FIRED: Final = 7
QUEUE_FLUSHED: Final = 8
SCHEDULING_BEGAN: Final = 9
SCHEDULING_ENDED: Final = 10
CHECKPOINTED: Final = 11
SCHEDULER: Final = 12


class Entry(msgspec.Struct, array_like=True, gc=False):
    """Base of all records, with the `time` of the event."""

    time: float


class Stored(Entry, tag=STORED):
    """An object of a checkpoint."""

    resource: str
    parts: msgspec.Raw
    """`Parts`, decoded once the type is known."""


class CheckpointEnd(Entry, tag=CHECKPOINT_END):
    """End of the checkpoint's objects; the log follows."""

    objects: int


class Changed(Entry, tag=CHANGED):
    """An informer's store changed.

    `op` is `a` (added), `u` (updated: `parts` differ), `d` (deleted: `parts` of the final state
    differ from the last known one) or `t` (missing in a list: the last known state is final).
    """

    resource: str
    op: str
    key: str
    parts: msgspec.Raw
    """`Parts`, decoded once the type is known."""


class Attempt(Entry, tag=ATTEMPT):
    """A pod was taken off the queue."""

    number: int
    pod: str
    uid: str


class Decision(Entry, tag=DECISION):
    """The result of an attempt: a node, or the digest of a status."""

    number: int
    pod: str
    uid: str
    node: str
    code: str
    digest: str


class Reached(Entry, tag=REACHED):
    """A task passed a point after which it changes inputs of decisions."""

    point: str
    uid: str
    outcome: list[str] | None = None
    """Code, plugin and reasons of the point's status, if it has one."""


class CallDone(Entry, tag=CALL_DONE):
    """An external call returned to its caller."""

    verb: str
    key: str
    error: list[str] | None = None
    """Type and message of the exception; code and reason of an API error."""
    result: Any = None


class TimerFired(Entry, tag=TIMER_FIRED):
    """One of the scheduler's own timers fired."""

    number: int


class QueueFlushed(Entry, tag=QUEUE_FLUSHED):
    """The queue checked for pods whose backoff or stay was over."""


class SchedulingBegan(Entry, tag=SCHEDULING_BEGAN):
    """This process leads, and its loop starts to take pods."""


class SchedulingEnded(Entry, tag=SCHEDULING_ENDED):
    """The loop ended; work in progress was cancelled."""


class Checkpointed(Entry, tag=CHECKPOINTED):
    """The next segment is replayable alone; the scheduler dropped state outside its checkpoint."""

    seed: int
    """Seed of the random numbers from here on."""


class SavedScheduler(Entry, tag=SCHEDULER):
    """The last part of a replayable checkpoint."""

    timers: int
    """Number of timers started before."""
    state: SchedulerState


AnyEntry = (
    Stored
    | CheckpointEnd
    | Changed
    | Attempt
    | Decision
    | Reached
    | CallDone
    | TimerFired
    | QueueFlushed
    | SchedulingBegan
    | SchedulingEnded
    | Checkpointed
    | SavedScheduler
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[list[AnyEntry]] = msgspec.msgpack.Decoder(list[AnyEntry])


def encode_entries(entries: Sequence[Entry | tuple[Any, ...]]) -> bytes:
    """Records as one block."""
    try:
        return _encoder.encode(entries)
    except OverflowError:
        # A quantity may be an arbitrarily large number; as text it means the same.
        return _encoder.encode([_small_numbers(msgspec.to_builtins(entry)) for entry in entries])


def _small_numbers(value: Any) -> Any:  # noqa: ANN401  # plain data
    if isinstance(value, dict):
        return {key: _small_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_small_numbers(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
        return str(value)
    return value


def decode_entries(data: bytes) -> list[AnyEntry]:
    """The records of a block. Raises msgspec.DecodeError."""
    return _decoder.decode(data)


# -- objects -------------------------------------------------------------------------------------


def whole(obj: Record) -> Parts:
    """All non-empty parts of an object."""
    parts: Parts = {}
    names = zip(obj.__struct_fields__, obj.__struct_encode_fields__, strict=True)
    defaults = obj.__struct_defaults__
    for index, (attribute, name) in enumerate(names):
        value = getattr(obj, attribute)
        if value != defaults[index]:
            parts[name] = value
    return redacted(parts)


def difference(old: Record, new: Record) -> Parts:
    """The parts of `new` that differ from `old`."""
    parts: Parts = {}
    for attribute, name in zip(new.__struct_fields__, new.__struct_encode_fields__, strict=True):
        before, after = getattr(old, attribute), getattr(new, attribute)
        if before is not after and before != after:
            parts[name] = after
    return redacted(parts)


_decoders: dict[type[Any], msgspec.msgpack.Decoder[Any]] = {}
_fields: dict[type[Any], dict[str, tuple[str, msgspec.msgpack.Decoder[Any]]]] = {}
"""Top-level fields of each kind by JSON name: attribute and decoder."""
_raws: msgspec.msgpack.Decoder[dict[str, msgspec.Raw]] = msgspec.msgpack.Decoder(
    dict[str, msgspec.Raw]
)


def restored(record: type[Any], parts: msgspec.Raw) -> Any:  # noqa: ANN401  # a record of that type
    """An object from all its parts. Raises msgspec.ValidationError."""
    decoder = _decoders.get(record)
    if decoder is None:
        decoder = _decoders[record] = msgspec.msgpack.Decoder(record)
    return decoder.decode(parts)


def patched(old: Any, parts: msgspec.Raw) -> Any:  # noqa: ANN401  # a record of any type
    """The version of an object after `old`. Raises msgspec.ValidationError."""
    record = type(old)
    fields = _fields.get(record)
    if fields is None:
        fields = _fields[record] = {
            field.encode_name: (field.name, msgspec.msgpack.Decoder(field.type))
            for field in structs.fields(record)
        }
    changed = {}
    for name, raw in _raws.decode(parts).items():
        field = fields.get(name)
        if field is not None:  # otherwise a field of a newer Kubernetes version
            changed[field[0]] = field[1].decode(raw)
    return structs.replace(old, **changed)


OTHERS: Final = "kubesched/other-annotations"
_KEY: Final = os.urandom(32)


def redacted(parts: dict[str, Any]) -> dict[str, Any]:
    """An object's top-level parts in their recorded form."""
    kept = dict(parts)
    if isinstance(meta := parts.get("metadata"), ObjectMeta):
        kept["metadata"] = _stripped(meta)
    return kept


def _stripped(meta: ObjectMeta) -> ObjectMeta:
    annotations = meta.annotations
    if not annotations or annotations.keys() <= ANNOTATIONS_READ:
        return meta
    kept = {key: value for key, value in annotations.items() if key in ANNOTATIONS_READ}
    digest = hashlib.blake2b(key=_KEY, digest_size=8)
    for key in sorted(annotations.keys() - ANNOTATIONS_READ):
        digest.update(f"{key}\0{annotations[key]}\0".encode("utf-8", "surrogatepass"))
    kept[OTHERS] = digest.hexdigest()
    return structs.replace(meta, annotations=kept)
