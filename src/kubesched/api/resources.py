"""Resource requests of pods and allocatable resources of nodes.

Sums over containers are exact; rounding to int64 happens once per pod and resource. Across pods the
rounded integers are added. Which parts of a pod count depends on the purpose: see `RequestOptions`
and its named instances, which follow this release's default feature gates.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TypeVar

import msgspec

from kubesched.api import quantity
from kubesched.api.core_v1 import Container, ContainerStatus, Node, Pod, PodStatus
from kubesched.api.meta import RawQuantity, ResourceList
from kubesched.api.names import key_of, label_key_problems
from kubesched.api.quantity import MAX_INT64, Quantity, QuantityError

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"
HUGE_PAGES_PREFIX = "hugepages-"

DEFAULT_REQUESTS: Mapping[str, RawQuantity] = {CPU: "100m", MEMORY: "200Mi"}
"""Assumed requests of a container without requests, for comparing nodes."""

# Sums use plain integers (units of 10^-9), and quantities only if a result overflows.
_Amount = TypeVar("_Amount", int, Quantity)


class ResourceClass(Enum):
    """How a resource name is accounted for."""

    CPU = CPU
    MEMORY = MEMORY
    EPHEMERAL_STORAGE = EPHEMERAL_STORAGE
    PODS = PODS
    SCALAR = "scalar"
    IGNORED = "ignored"


@functools.lru_cache(maxsize=4096)
def classify(name: str) -> ResourceClass:
    """The column of a resource vector for a name."""
    if name in (CPU, MEMORY, EPHEMERAL_STORAGE, PODS):
        return ResourceClass(name)
    if (
        name.startswith((HUGE_PAGES_PREFIX, "attachable-volumes-"))
        or "kubernetes.io/" in name
        or is_extended(name)
    ):
        return ResourceClass.SCALAR
    return ResourceClass.IGNORED


def is_native(name: str) -> bool:
    """True for Kubernetes' own names: without a domain, or under kubernetes.io."""
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    """True for `vendor.example/device` names."""
    if is_native(name) or name.startswith("requests."):
        return False
    return not label_key_problems(f"requests.{name}")


class _Amounts(msgspec.Struct, frozen=True, gc=False):
    """Rounded amounts by resource. `scalars` is shared: do not modify it."""

    milli_cpu: int = 0
    memory: int = 0
    ephemeral_storage: int = 0
    scalars: dict[str, int] = {}

    def get(self, name: str) -> int:
        """The amount of a resource by name: milli-units of cpu, units of anything else."""
        if name == CPU:
            return self.milli_cpu
        if name == MEMORY:
            return self.memory
        if name == EPHEMERAL_STORAGE:
            return self.ephemeral_storage
        return self.scalars.get(name, 0)


class PodRequests(_Amounts, frozen=True, gc=False):
    """The requests of a pod."""


class NodeAllocatable(_Amounts, frozen=True, gc=False):
    """The allocatable resources of a node."""

    allowed_pods: int = 0


def node_allocatable(node: Node) -> NodeAllocatable:
    """The node's `status.allocatable`; capacity is never used."""
    amounts: dict[str, int] = {}
    for name, raw in (node.status.allocatable or {}).items():
        try:
            if classify(name) is not ResourceClass.IGNORED:
                amounts[name] = _rounded(name, raw)
        except QuantityError as error:
            where = f"node {node.metadata.name}: status.allocatable[{name}]"
            raise QuantityError(f"{where}: {raw!r}: {error}") from None
    return NodeAllocatable(*_vector(amounts), amounts.get(PODS, 0))


def _rounded(name: str, raw: RawQuantity) -> int:
    return quantity.milli_value(raw) if name == CPU else quantity.value(raw)


class RequestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which parts of a pod count as its requests."""

    use_status: bool = False
    """Use the kubelet's report where it exceeds the spec."""
    by_container: bool = False
    """Compare report and spec container by container, as before 1.37; needs `use_status`."""
    pod_level_status: bool = False
    """Also use the report for the pod as a whole; needs `use_status`."""
    skip_pod_level: bool = False
    """Ignore `spec.resources`."""
    defaults: Mapping[str, RawQuantity] = {}
    """Requests of containers that do not set the resource; an explicit 0 counts as set."""


FILTERED = RequestOptions()
"""Resources that a node must have free for a pod to be scheduled."""

ACCOUNTED = RequestOptions(use_status=True, pod_level_status=True)
"""Resources a pod uses on its node: a resize in progress counts in full."""

ACCOUNTED_BY_CONTAINER = msgspec.structs.replace(ACCOUNTED, by_container=True)
"""The same before 1.37: the sum of the largest parts instead of the largest sum."""

_ACCOUNTED_WITH_DEFAULTS = RequestOptions(
    use_status=True, pod_level_status=True, defaults=DEFAULT_REQUESTS
)

# Upstream: NodeResourcesFit scores without pod-level requests although it filters with them.
SCORED = RequestOptions(skip_pod_level=True, defaults=DEFAULT_REQUESTS)
"""Requests of a pod to be scheduled for NodeResourcesFit scoring."""


def accounted_requests(pod: Pod, options: RequestOptions = ACCOUNTED) -> PodRequests:
    """Resources that a pod uses on its node."""
    return pod_requests(pod, options)


def nonzero_requests(pod: Pod, options: RequestOptions = ACCOUNTED) -> tuple[int, int]:
    """(milli CPU, memory) of a pod on a node, with defaults for containers without requests.

    With pod-level requests, a default applies only to resources that the pod level leaves unset.
    """
    if options is ACCOUNTED and pod.spec.resources is None:
        requests = pod_requests(pod, _ACCOUNTED_WITH_DEFAULTS)
        return requests.milli_cpu, requests.memory
    defaults = DEFAULT_REQUESTS
    if not options.skip_pod_level and _has_pod_level_requests(pod):
        named = request_amounts(pod, options)
        defaults = {name: raw for name, raw in DEFAULT_REQUESTS.items() if name not in named}
    requests = pod_requests(pod, msgspec.structs.replace(options, defaults=defaults))
    return requests.milli_cpu, requests.memory


def filter_requests(pod: Pod, options: RequestOptions = FILTERED) -> PodRequests:
    """Resources that a node must have free for a pod to be scheduled; never negative."""
    requests = pod_requests(pod, options)
    smallest = min(requests.milli_cpu, requests.memory, requests.ephemeral_storage)
    scalars = requests.scalars
    if smallest >= 0 and (not scalars or min(scalars.values()) >= 0):
        return requests
    return PodRequests(
        max(0, requests.milli_cpu),
        max(0, requests.memory),
        max(0, requests.ephemeral_storage),
        {name: max(0, amount) for name, amount in requests.scalars.items()},
    )


def pod_requests(pod: Pod, options: RequestOptions = FILTERED) -> PodRequests:
    """The pod's requests, rounded."""
    try:
        if _is_simple(pod, options):
            return _single_container_requests(pod, options.defaults)
        rounded = {
            name: -(-amount // (10**6 if name == CPU else 10**9))
            for name, amount in _total(pod, quantity.nanos, options).items()
        }
        if any(not 0 <= amount <= MAX_INT64 for amount in rounded.values()):
            # The result of overflow and negative amounts depends on how the quantities were
            # written.
            rounded = {
                name: total.milli_value() if name == CPU else total.value()
                for name, total in _total(pod, quantity.parse, options).items()
            }
    except QuantityError as error:
        raise QuantityError(_blame(pod, error)) from None
    return PodRequests(*_vector(rounded))


def request_amounts(pod: Pod, options: RequestOptions = FILTERED) -> dict[str, int]:
    """The pod's requests by resource name, exactly, in units of 10^-9."""
    try:
        return _total(pod, quantity.nanos, options)
    except QuantityError as error:
        raise QuantityError(_blame(pod, error)) from None


def _is_simple(pod: Pod, options: RequestOptions) -> bool:
    spec = pod.spec
    return (
        spec.containers is not None
        and len(spec.containers) == 1
        and not spec.init_containers
        and spec.resources is None
        and not spec.overhead
        and not (options.use_status and _has_report(pod))
    )


def _has_report(pod: Pod) -> bool:
    status = pod.status
    return bool(
        status.container_statuses
        or status.init_container_statuses
        or status.allocated_resources is not None
        or is_resize_infeasible(pod)
    )


def _single_container_requests(pod: Pod, defaults: Mapping[str, RawQuantity]) -> PodRequests:
    """Fast path for the common pod: this runs several times for every pod that arrives."""
    assert pod.spec.containers is not None
    requests = pod.spec.containers[0].resources.requests
    written = tuple(requests.items()) if requests else ()
    read = _amounts_as_written if len(written) <= _FEW_NAMES else _amounts_as_written.__wrapped__
    return read(written, tuple(defaults.items()) if defaults else ())


_FEW_NAMES = 32
"""Requests with more names are not cached: a pod's author could fill the cache with thousands."""


@functools.lru_cache(maxsize=1024)
def _amounts_as_written(
    requests: tuple[tuple[str, RawQuantity], ...], defaults: tuple[tuple[str, RawQuantity], ...]
) -> PodRequests:
    """Requests by name as a vector, cached: many pods share few spellings."""
    named = {name for name, _ in requests}
    missing = [(name, raw) for name, raw in defaults if name not in named]
    amounts = {
        name: _rounded(name, raw)
        for name, raw in (*requests, *missing)
        if classify(name) not in (ResourceClass.PODS, ResourceClass.IGNORED)
    }
    return PodRequests(*_vector(amounts))


def _vector(rounded: Mapping[str, int]) -> tuple[int, int, int, dict[str, int]]:
    """The fields of `_Amounts`, in their order."""
    scalars = {
        name: amount for name, amount in rounded.items() if classify(name) is ResourceClass.SCALAR
    }
    named = rounded.get(CPU, 0), rounded.get(MEMORY, 0), rounded.get(EPHEMERAL_STORAGE, 0)
    return (*named, scalars)


def limit_amounts(pod: Pod) -> dict[str, int]:
    """The pod's limits by resource name, in units of 10^-9.

    Pod-level limits replace the containers' sum; overhead counts only where there is a limit.
    """
    total = _peak(pod, lambda container: _amounts(container.resources.limits, quantity.nanos))
    if pod.spec.resources is not None:
        for name, raw in (pod.spec.resources.limits or {}).items():
            if _is_pod_level(name):
                total[name] = quantity.nanos(raw)
    for name, raw in (pod.spec.overhead or {}).items():
        if total.get(name):
            total[name] += quantity.nanos(raw)
    return total


def _total(
    pod: Pod, read: Callable[[RawQuantity], _Amount], options: RequestOptions
) -> dict[str, _Amount]:
    """The request arithmetic, over the number type that `read` returns for a raw quantity."""
    spec = pod.spec
    if not options.use_status:
        total = _sum_of(pod, read, options, _requested)
    elif options.by_container:
        total = _sum_of_largest(pod, read, options)
    else:
        total = _largest_sum(pod, read, options)
    if not options.skip_pod_level and spec.resources is not None and _has_pod_level_requests(pod):
        requested = _amounts(spec.resources.requests, read)
        if options.pod_level_status and options.use_status and pod.status.resources is not None:
            requested = _effective(
                pod,
                read,
                spec.resources.requests,
                pod.status.resources.requests,
                pod.status.allocated_resources,
            )
            if options.by_container:
                names = spec.resources.requests or {}
                requested = {n: requested[n] if n in requested else read(0) for n in names}
        total |= {name: amount for name, amount in requested.items() if _is_pod_level(name)}
    _add(total, _amounts(spec.overhead, read))
    return total


Source = Callable[[Container, ContainerStatus | None], ResourceList | None]
"""The requests of a container, from its spec or its status."""


def _requested(container: Container, status: ContainerStatus | None) -> ResourceList | None:
    return container.resources.requests


def _largest_sum(
    pod: Pod, read: Callable[[RawQuantity], _Amount], options: RequestOptions
) -> dict[str, _Amount]:
    """The largest of what the containers request, are allocated, and have.

    A sum over containers each; the kubelet's report for the pod as a whole replaces the last two.
    """
    is_infeasible = is_resize_infeasible(pod)

    def allocated(container: Container, status: ContainerStatus | None) -> ResourceList | None:
        if status is not None and status.allocated_resources is not None:
            return status.allocated_resources
        return None if is_infeasible else container.resources.requests

    def actual(container: Container, status: ContainerStatus | None) -> ResourceList | None:
        if status is not None and status.resources is not None:
            reported: ResourceList | None = status.resources.requests
            if reported is not None:
                return reported
        return allocated(container, status)

    total = {} if is_infeasible else _sum_of(pod, read, options, _requested)
    whole, whole_allocated = pod.status.resources, pod.status.allocated_resources
    if (
        options.pod_level_status
        and whole_allocated is not None
        and whole is not None
        and whole.requests is not None
    ):
        _raise_to(total, _amounts(whole.requests, read))
        _raise_to(total, _amounts(whole_allocated, read))
    else:
        _raise_to(total, _sum_of(pod, read, options, actual))
        _raise_to(total, _sum_of(pod, read, options, allocated))
    return total


def _sum_of(
    pod: Pod, read: Callable[[RawQuantity], _Amount], options: RequestOptions, source: Source
) -> dict[str, _Amount]:
    """The peak over the containers with their requests from one source."""
    reported = _statuses(pod) if options.use_status else ()
    # The first status of a name counts.
    statuses = {status.name: status for status in reversed(reported)}

    def needs(container: Container) -> dict[str, _Amount]:
        amounts = _amounts(source(container, statuses.get(container.name)), read)
        return _with_defaults(amounts, read, options)

    return _peak(pod, needs)


def _sum_of_largest(
    pod: Pod, read: Callable[[RawQuantity], _Amount], options: RequestOptions
) -> dict[str, _Amount]:
    """The peak over the containers, each with the largest of its requests; 1.36.

    The report counts if it has `resources`, and not for init containers that end.
    """
    statuses = {status.name: status for status in _statuses(pod)}
    ending = {id(c) for c in pod.spec.init_containers or () if not c.is_restartable_init()}

    def needs(container: Container) -> dict[str, _Amount]:
        status = None if id(container) in ending else statuses.get(container.name)
        if status is None or status.resources is None:
            amounts = _amounts(container.resources.requests, read)
        else:
            amounts = _effective(
                pod,
                read,
                container.resources.requests,
                status.resources.requests,
                status.allocated_resources,
            )
        return _with_defaults(amounts, read, options)

    return _peak(pod, needs)


def _with_defaults(
    amounts: dict[str, _Amount], read: Callable[[RawQuantity], _Amount], options: RequestOptions
) -> dict[str, _Amount]:
    for name, raw in options.defaults.items():
        if name not in amounts:
            amounts[name] = read(raw)
    return amounts


def _peak(pod: Pod, needs: Callable[[Container], dict[str, _Amount]]) -> dict[str, _Amount]:
    """Peak need of the containers.

    Sidecars run concurrently with everything that starts after them; an ordinary init container
    runs alone with the sidecars before it.
    """
    running: dict[str, _Amount] = {}
    for container in pod.spec.containers or ():
        _add(running, needs(container))
    sidecars: dict[str, _Amount] = {}
    starting: dict[str, _Amount] = {}
    for container in pod.spec.init_containers or ():
        use = needs(container)
        if container.is_restartable_init():
            _add(running, use)
            _add(sidecars, use)
            use = sidecars
        else:
            _add(use, sidecars)
        _raise_to(starting, use)
    _raise_to(running, starting)
    return running


def _statuses(pod: Pod) -> tuple[ContainerStatus, ...]:
    status = pod.status
    return (*(status.container_statuses or ()), *(status.init_container_statuses or ()))


def _effective(
    pod: Pod,
    read: Callable[[RawQuantity], _Amount],
    spec: ResourceList | None,
    actual: ResourceList | None,
    allocated: ResourceList | None,
) -> dict[str, _Amount]:
    """The requests that count during a resize; an infeasible spec does not."""
    result = {} if is_resize_infeasible(pod) else _amounts(spec, read)
    _raise_to(result, _amounts(actual, read))
    _raise_to(result, _amounts(allocated, read))
    return result


def same_resource_status(old: Pod, new: Pod) -> bool:
    """Whether two versions of a pod have the same status as far as `ACCOUNTED` requests read it."""
    before, after = old.status, new.status
    if before is after:
        return True
    pending = _pending_resizes(before)
    if (
        before.resources != after.resources
        or before.allocated_resources != after.allocated_resources
        or pending != _pending_resizes(after)
    ):
        return False
    if pending:  # of an infeasible resize only reports count, also those that equal the spec
        return (before.container_statuses, before.init_container_statuses) == (
            after.container_statuses,
            after.init_container_statuses,
        )
    if not (
        before.container_statuses
        or after.container_statuses
        or before.init_container_statuses
        or after.init_container_statuses
    ):
        return True  # no report yet, as for a pod that was just bound
    return _reported(old.spec.containers, before.container_statuses) == _reported(
        new.spec.containers, after.container_statuses
    ) and _reported(old.spec.init_containers, before.init_container_statuses) == _reported(
        new.spec.init_containers, after.init_container_statuses
    )


def _reported(
    containers: list[Container] | None, statuses: list[ContainerStatus] | None
) -> list[object]:
    """The kubelet's resource report, if it differs from the spec; an equal one counts as none.

    Every pod that starts gets such a report, and parsing its quantities again costs as much as the
    rest of the update.
    """
    if not statuses:
        return []
    asked = {c.name: c.resources.requests for c in containers or ()}
    reported: list[object] = []
    for c in statuses:
        actual, allocated = c.resources, c.allocated_resources
        if actual is None and allocated is None:
            continue
        wanted = asked.get(c.name)
        as_asked = actual is not None and actual.requests == wanted
        if not as_asked or (allocated is not None and allocated != wanted):
            reported.append((c.name, actual, allocated))
    return reported


def _pending_resizes(status: PodStatus) -> list[object]:
    for condition in status.conditions or ():
        if condition.type == "PodResizePending":
            return [
                (c.type, c.reason) for c in status.conditions or () if c.type == "PodResizePending"
            ]
    return []


def is_resize_infeasible(pod: Pod) -> bool:
    """True if the kubelet reported that the pod's resize is infeasible on its node."""
    return _resize_pending_for(pod) == "Infeasible"


def is_resize_deferred(pod: Pod) -> bool:
    """True if the pod's resize fits its node, but not beside the other pods there."""
    return _resize_pending_for(pod) == "Deferred"


def _resize_pending_for(pod: Pod) -> str | None:
    for condition in pod.status.conditions or ():
        if condition.type == "PodResizePending":
            return condition.reason
    return None


def _is_pod_level(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith(HUGE_PAGES_PREFIX)


def _has_pod_level_requests(pod: Pod) -> bool:
    resources = pod.spec.resources
    return resources is not None and any(map(_is_pod_level, resources.requests or ()))


def _amounts(
    requests: ResourceList | None, read: Callable[[RawQuantity], _Amount]
) -> dict[str, _Amount]:
    return {name: read(raw) for name, raw in requests.items()} if requests else {}


def _add(total: dict[str, _Amount], more: Mapping[str, _Amount]) -> None:
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount


def _raise_to(total: dict[str, _Amount], floor: Mapping[str, _Amount]) -> None:
    for name, amount in floor.items():
        if name not in total or amount > total[name]:
            total[name] = amount


def _blame(pod: Pod, error: QuantityError) -> str:
    """The error with its pod and field."""
    spec = pod.spec
    lists: dict[str, ResourceList | None] = {"spec.overhead": spec.overhead}
    for field, containers in (
        ("spec.containers", spec.containers),
        ("spec.initContainers", spec.init_containers),
    ):
        for i, container in enumerate(containers or ()):
            lists[f"{field}[{i}].resources.requests"] = container.resources.requests
    if spec.resources is not None:
        lists["spec.resources.requests"] = spec.resources.requests
    for path, requests in lists.items():
        for name, raw in (requests or {}).items():
            try:
                quantity.parse(raw)
            except QuantityError as invalid:
                return f"pod {key_of(pod.metadata)}: {path}[{name}]: {raw!r}: {invalid}"
    return f"pod {key_of(pod.metadata)}: status: {error}"
