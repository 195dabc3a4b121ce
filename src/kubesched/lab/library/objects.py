"""Objects for a cluster: generated in bulk, or loaded from the sources that commands accept."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from typing import Any, cast

from msgspec import structs

from kubesched.api import codec, quantity
from kubesched.api.core_v1 import Node, Pod
from kubesched.api.kinds import kind_of
from kubesched.api.meta import RawQuantity, Record
from kubesched.base.errors import KubeschedError
from kubesched.insight.planning.manifests import Manifest, parse_manifests, read_manifests
from kubesched.insight.state.cluster_state import KINDS, ClusterState
from kubesched.playground.apimachinery.schema.decoding import unknown_fields

_TEMPLATED = (
    "DaemonSet",
    "Deployment",
    "Job",
    "ReplicaSet",
    "ReplicationController",
    "StatefulSet",
)
_KINDS = {(kind.api_version, kind.kind): kind for kind in KINDS}
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"

Source = ClusterState | Record | Mapping[str, Any] | str | PathLike[str] | Iterable[Any]
"""Objects as records, dictionaries or YAML text; a path to a dump; any of these in a list."""


class InputError(KubeschedError, ValueError):
    """An argument that cannot be used; the message names object and field."""


def nodes(
    count: int,
    *,
    cpu: RawQuantity = 8,
    memory: RawQuantity = "32Gi",
    pods: int = 110,
    zones: int = 0,
    resources: Mapping[str, RawQuantity] | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    name: str = "node",
) -> list[Node]:
    """`count` nodes of one kind, named `<name>-0` and so on, in `zones` zones in turn.

    `resources` are further resources (`{"nvidia.com/gpu": 8}`), `taints` as in a manifest.

    Raises:
        InputError: a quantity or a field is invalid.
    """
    _counted(zones, f"{name}: zones")
    capacity = {"cpu": cpu, "memory": memory, "pods": pods, **(resources or {})}
    model = _record(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"{_counted(count, name)}-0", "labels": labels},
            "spec": {"taints": list(taints)} if taints else {},
            "status": {"capacity": capacity, "allocatable": capacity},
        }
    )
    made = []
    for number in range(count):
        own = {HOSTNAME: f"{name}-{number}", **(labels or {})}
        if zones:
            own[ZONE] = f"zone-{number % zones}"
        meta = structs.replace(
            model.metadata, name=f"{name}-{number}", uid=f"{name}-{number}", labels=own
        )
        made.append(structs.replace(model, metadata=meta))
    return made


def pods(
    count: int,
    *,
    cpu: RawQuantity | None = None,
    memory: RawQuantity | None = None,
    resources: Mapping[str, RawQuantity] | None = None,
    labels: Mapping[str, str] | None = None,
    priority: int | None = None,
    namespace: str = "default",
    name: str = "pod",
    spec: Mapping[str, Any] | None = None,
) -> list[Pod]:
    """`count` pods of one kind, named `<name>-0` and so on.

    `resources` are further requests; `spec` has any other field of a pod's spec, as in a manifest.

    Raises:
        InputError: a quantity or a field is invalid.
    """
    given = {"cpu": cpu, "memory": memory, **(resources or {})}
    requests = {key: amount for key, amount in given.items() if amount is not None}
    if not isinstance(spec or {}, Mapping):
        raise InputError(f"pod {namespace}/{name}-0: spec: fields are needed, not {spec!r}")
    container = {"name": "main", "image": "app", "resources": {"requests": requests}}
    model = _record(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{_counted(count, name)}-0",
                "namespace": namespace,
                "labels": labels,
            },
            "spec": {
                "schedulerName": "default-scheduler",
                "containers": [container],
                **({} if priority is None else {"priority": priority}),
                **(spec or {}),
            },
        }
    )
    key = f"{namespace}/{name}"
    return [
        structs.replace(
            model,
            metadata=structs.replace(
                model.metadata, name=f"{name}-{number}", uid=f"{key}-{number}"
            ),
        )
        for number in range(count)
    ]


def load(
    *paths: str | PathLike[str],
    recording: str | PathLike[str] | None = None,
    at: float | int | None = None,
    kubeconfig: str | None = None,
    context: str = "",
) -> ClusterState:
    """A whole cluster: from dumps and snapshots (files, folders), a recording, or a live cluster.

    `at` is a moment of the recording: the number of an attempt (an integer) or a Unix time.

    Raises:
        InputError: not exactly one source is given.
        KubeschedError: the source cannot be read; the message says where.
    """
    if bool(paths) + (recording is not None) + (kubeconfig is not None or bool(context)) != 1:
        raise InputError("load: name files, a recording, or a kubeconfig (or context): one of them")
    if not isinstance(at, float | int | None):
        raise InputError(f"load: at: the number of an attempt or a Unix time, not {at!r}")
    if recording is not None:
        from kubesched.insight.recording.reader import RecordingReader

        reader = RecordingReader.of_folder(str(recording))
        if isinstance(at, float):
            return reader.state_at(wall_time=at)
        return reader.state_at(attempt=at)
    if paths:
        from kubesched.insight.state.dumps import load_dumps

        return load_dumps([str(path) for path in paths])
    from kubesched.insight.state.live import load_live

    with ThreadPoolExecutor(1) as pool:  # a notebook runs a loop in this thread already
        return pool.submit(asyncio.run, load_live(kubeconfig or "", context)).result()


def records_of(source: Source) -> Iterator[Record | Manifest]:
    """The objects of a source: records, or manifests of workloads whose pods a controller makes.

    Raises:
        InputError: an object is malformed or has unknown fields.
    """
    match source:
        case ClusterState():
            yield from source
        case Record():
            yield source
        case Mapping() if isinstance(items := source.get("items"), list):
            yield from records_of(items)
        case Mapping():
            yield _of_manifest(Manifest("object", 1, dict(source)))
        case str() if "\n" in source:
            for manifest in parse_manifests("text", source.encode()):
                yield _of_manifest(manifest)
        case str() | PathLike():
            yield from load(source)
        case _ if hasattr(source, "build"):
            yield source.build()
        case Iterable():
            for part in source:
                yield from records_of(part)
        case _:
            raise InputError(
                f"objects are records, dictionaries, YAML or paths, not {type(source).__name__}"
            )


def manifests_of(source: Source) -> list[Manifest]:
    """The objects of a source as manifests, for plans.

    Raises:
        PlanError: a file cannot be read, or has something other than objects in it.
        InputError: as `records_of`.
    """
    if isinstance(source, str | PathLike):
        text = str(source)
        return parse_manifests("text", text.encode()) if "\n" in text else read_manifests([text])
    return [
        obj if isinstance(obj, Manifest) else Manifest("object", 1, _manifest_of(obj))
        for obj in records_of(source)
    ]


def _manifest_of(obj: Record) -> dict[str, Any]:
    kind = kind_of(type(obj))
    return {"apiVersion": kind.api_version, "kind": kind.kind, **cast("Any", codec.to_json(obj))}


def _of_manifest(manifest: Manifest) -> Record | Manifest:
    return manifest if manifest.kind in _TEMPLATED else _record(manifest.obj)


def _record(obj: dict[str, Any]) -> Any:  # noqa: ANN401  # a record of its kind
    api_version, kind_name = str(obj.get("apiVersion", "")), str(obj.get("kind", ""))
    meta = obj.get("metadata")
    named = meta if isinstance(meta, Mapping) else {}
    name = "/".join(str(part) for part in (named.get("namespace"), named.get("name")) if part)
    where = f"{kind_name or 'object'} {name}".rstrip()
    kind = _KINDS.get((api_version, kind_name))
    if kind is None:
        raise InputError(f"{where}: scheduling reads no {kind_name!r} of {api_version!r}")
    if not named.get("name"):
        raise InputError(f"{where}: metadata.name is missing")
    group = api_version.rpartition("/")[0]
    if unknown := unknown_fields(group, kind_name, cast("Any", obj)):
        raise InputError(f"{where}: unknown field {next(iter(unknown))!r}")
    try:
        record = codec.convert(obj, kind.record)
    except codec.MalformedObject as error:
        raise InputError(str(error)) from None
    for field, amounts in _amounts(record):
        for resource, amount in (amounts or {}).items():
            try:
                is_negative = quantity.parse(amount).sign() < 0
            except quantity.QuantityError as error:
                raise InputError(f"{where}: {field}.{resource}: {amount!r}: {error}") from None
            if is_negative:
                raise InputError(f"{where}: {field}.{resource}: {amount} is less than 0")
    return record


def _counted(count: int, name: str) -> str:
    if not isinstance(count, int) or count < 0:
        raise InputError(f"{name}: {count!r} of them cannot be made")
    return name


def _amounts(record: Any) -> Iterator[tuple[str, Mapping[str, RawQuantity] | None]]:  # noqa: ANN401  # of any kind
    """The quantities of a node or a pod, by field."""
    if isinstance(record, Node):
        yield "status.capacity", record.status.capacity
        yield "status.allocatable", record.status.allocatable
    elif isinstance(record, Pod):
        for number, container in enumerate(record.spec.containers or ()):
            yield f"spec.containers[{number}].resources.requests", container.resources.requests
