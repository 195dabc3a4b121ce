"""The special claim: one claim per pod for its extended resources backed by device classes.

Until PreBind creates it, it exists in memory only, under a name that no object can have. Which
resources it covers depends on the node: a device plugin on the node serves its resource itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from kubesched.api import quantity
from kubesched.api.core_v1 import Container, ContainerExtendedResourceRequest, Pod
from kubesched.api.meta import ObjectMeta, OwnerReference
from kubesched.api.resource_v1 import (
    DEVICE_CLASS_RESOURCE_PREFIX,
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kubesched.api.resources import is_extended
from kubesched.plugins.dynamic_resources.structured.requests import EXACT_COUNT

IN_MEMORY_NAME = "<extended-resources>"

Mappings = list[ContainerExtendedResourceRequest]


def may_be_backed(name: str) -> bool:
    """Can a device class back a resource of this name?"""
    return name.startswith(DEVICE_CLASS_RESOURCE_PREFIX) or is_extended(name)


def special_claim(pod: Pod, uid: str) -> ResourceClaim:
    """The claim before a node is chosen; `uid` is generated."""
    meta = pod.metadata
    owner = OwnerReference(
        api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True
    )
    return ResourceClaim(
        metadata=ObjectMeta(
            name=IN_MEMORY_NAME,
            generate_name=f"{meta.name}-extended-resources-",
            namespace=meta.namespace,
            uid=uid,
            annotations={EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
            owner_references=[owner],
        )
    )


def with_requests(claim: ResourceClaim, requests: Sequence[DeviceRequest]) -> ResourceClaim:
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=list(requests) or None))
    return structs.replace(claim, spec=spec)


def requests_and_mappings(
    pod: Pod, resources: Mapping[str, str]
) -> tuple[list[DeviceRequest], Mappings]:
    """The special claim's requests, and the container resource that each serves.

    `resources` maps resource names to device classes.
    """
    init = pod.spec.init_containers or []
    containers = [*init, *(pod.spec.containers or ())]
    short_lived = [
        index for index, container in enumerate(init) if container.restart_policy != "Always"
    ]
    requests: list[DeviceRequest] = []
    mappings: Mappings = []
    for resource in sorted(resources, key=str.encode):
        more_requests, more_mappings = _for_resource(
            containers, short_lived, resource, resources[resource]
        )
        requests += more_requests
        mappings += more_mappings
    requests.sort(key=lambda request: request.name.encode())
    return requests, mappings


def _for_resource(
    containers: Sequence[Container], short_lived: Sequence[int], resource: str, class_name: str
) -> tuple[list[DeviceRequest], Mappings]:
    """Requests for one resource, by container.

    Long-lived containers get their own devices; init containers reuse those of later containers and
    share the rest.
    """
    long_lived: list[DeviceRequest | None] = [None] * len(containers)
    long_mappings: Mappings = []
    for index, container in enumerate(containers):
        if index not in short_lived:
            long_lived[index], added = _for_container(index, container, resource, class_name, ())
            long_mappings += added
    short_mappings: Mappings = []
    extra: list[DeviceRequest] = []
    for index in short_lived:
        request, added = _for_container(
            index, containers[index], resource, class_name, long_lived[index:]
        )
        short_mappings += added
        if request is not None:
            extra.append(request)
    kept = max(extra, key=_count, default=None)
    if kept is not None:
        others = {request.name for request in extra}
        short_mappings = [
            structs.replace(mapping, request_name=kept.name)
            if mapping.request_name in others
            else mapping
            for mapping in short_mappings
        ]
    requests = [request for request in (kept, *long_lived) if request is not None]
    return requests, long_mappings + short_mappings


def _for_container(
    index: int,
    container: Container,
    resource: str,
    class_name: str,
    reusable: Sequence[DeviceRequest | None],
) -> tuple[DeviceRequest | None, Mappings]:
    resources = container.resources
    requested = (None if resources is None else resources.requests) or {}
    wanted = _whole_number(requested.get(resource, 0))
    if not wanted:
        return None, []

    def mapping(request_name: str) -> ContainerExtendedResourceRequest:
        return ContainerExtendedResourceRequest(
            container_name=container.name, resource_name=resource, request_name=request_name
        )

    mappings: Mappings = []
    have = 0
    for request in reusable:
        if request is not None:
            have += _count(request)
            mappings.append(mapping(request.name))
            if have >= wanted:
                return None, mappings
    position = sorted(requested, key=str.encode).index(resource)
    name = f"container-{index}-request-{position}"
    own = DeviceRequest(
        name=name,
        exactly=ExactDeviceRequest(
            device_class_name=class_name, allocation_mode=EXACT_COUNT, count=wanted - have
        ),
    )
    return own, [*mappings, mapping(name)]


def _count(request: DeviceRequest) -> int:
    assert request.exactly is not None, "requests of the special claim are exact"
    return request.exactly.count


def _whole_number(raw: str | int | float) -> int:
    """The quantity as an integer; 0 if it is not a whole number, which is ignored."""
    amount = quantity.nanos(raw)
    whole, rest = divmod(amount, 10**9)
    return 0 if rest else whole
