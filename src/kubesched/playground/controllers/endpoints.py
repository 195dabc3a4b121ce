"""Endpoints of services: EndpointSlices, and the Endpoints object that older clients read.

A slice holds at most `MAX_ENDPOINTS` endpoints that serve the same ports. Slices are compared with
their desired content before writing, so an unchanged service causes no writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kubesched.playground.apimachinery.objects import (
    JsonObject,
    controller_reference,
    encode,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    spec_of,
    status_of,
    uid_of,
)
from kubesched.playground.apimachinery.pods import is_finished, is_ready, node_name_of
from kubesched.playground.client.controller import Controller, ControllerContext, settling_s
from kubesched.playground.client.informers import BY_NAMESPACE
from kubesched.playground.controllers.ownership import Dependents

SLICES = "endpointslices.discovery.k8s.io"
ENDPOINTS = "endpoints"
MAX_ENDPOINTS = 100

SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
HEADLESS = "service.kubernetes.io/headless"
ZONE = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class _Backend:
    """A pod behind a service, and the ports it serves on."""

    pod: JsonObject
    address: str
    ports: tuple[JsonObject, ...]
    is_serving: bool

    @property
    def is_ready(self) -> bool:
        return self.is_serving and not is_deleting(self.pod)


class EndpointController(Controller[str]):
    """Maintains the endpoints of every service with a selector."""

    name = "endpoints"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._services = self.watch("services", self._service_changed, BY_NAMESPACE)
        self._pods = self.watch("pods", self._pod_changed, BY_NAMESPACE)
        self._nodes = self.watch("nodes")
        self._slices = Dependents(self.api, self.watch(SLICES, self._slice_changed))
        self._endpoints = self.watch(ENDPOINTS)

    def sync(self, key: str) -> float | None:
        service = self._services.get(key)
        if service is None:
            self._forget(key)
            return None
        if not spec_of(service).get("selector") or is_deleting(service):
            return None
        backends = self._backends(service)
        self._write_slices(service, backends)
        self._write_endpoints(service, backends)
        return None

    # -- backends --------------------------------------------------------------------------------

    def _backends(self, service: JsonObject) -> list[_Backend]:
        selector = spec_of(service)["selector"].items()
        publishes_all = bool(spec_of(service).get("publishNotReadyAddresses"))
        backends = []
        for pod in self._pods.find(BY_NAMESPACE, namespace_of(service)):
            address = status_of(pod).get("podIP")
            if not address or is_finished(pod) or not selector <= labels_of(pod).items():
                continue
            is_serving = publishes_all or is_ready(pod)
            backends.append(_Backend(pod, address, _ports(service, pod), is_serving))
        return sorted(backends, key=lambda backend: name_of(backend.pod))

    # -- slices ----------------------------------------------------------------------------------

    def _write_slices(self, service: JsonObject, backends: list[_Backend]) -> None:
        present = sorted(self._slices.of(service), key=name_of)
        wanted = [
            {"endpoints": [self._endpoint(backend) for backend in part], "ports": list(ports)}
            for ports, group in _by_ports(backends)
            for part in _parts(group)
        ]
        if not wanted:
            wanted = [{"endpoints": [], "ports": list(_service_ports(service))}]
        labels = {
            **{key: value for key, value in labels_of(service).items() if key != HEADLESS},
            SERVICE_NAME: name_of(service),
            MANAGED_BY: MANAGER,
        }
        if spec_of(service).get("clusterIP") == "None":
            labels[HEADLESS] = ""
        for index, body in enumerate(wanted):
            if index < len(present):
                self._update_slice(present[index], body, labels)
            else:
                self._create_slice(service, body, labels)
        for surplus in present[len(wanted) :]:
            self.api.delete_object(SLICES, surplus)

    def _endpoint(self, backend: _Backend) -> JsonObject:
        pod = backend.pod
        endpoint: JsonObject = {
            "addresses": [backend.address],
            "conditions": {
                "ready": backend.is_ready,
                "serving": backend.is_serving,
                "terminating": is_deleting(pod),
            },
            "targetRef": _target(pod),
        }
        hostname, subdomain = spec_of(pod).get("hostname"), spec_of(pod).get("subdomain")
        if hostname and subdomain:
            endpoint["hostname"] = hostname
        node_name = node_name_of(pod)
        if node_name:
            endpoint["nodeName"] = node_name
            node = self._nodes.get(node_name)
            zone = labels_of(node).get(ZONE) if node is not None else None
            if zone:
                endpoint["zone"] = zone
        return endpoint

    def _create_slice(self, service: JsonObject, body: JsonObject, labels: JsonObject) -> None:
        metadata = {
            "generateName": f"{name_of(service)}-",
            "labels": labels,
            "ownerReferences": [controller_reference(service)],
        }
        obj = {"metadata": metadata, "addressType": "IPv4", **body}
        self.api.create(SLICES, obj, namespace_of(service))

    def _update_slice(self, present: JsonObject, body: JsonObject, labels: JsonObject) -> None:
        is_same = (present.get("endpoints") or []) == body["endpoints"]
        is_same = is_same and (present.get("ports") or []) == body["ports"]
        if is_same and labels_of(present) == labels:
            return
        patch = {"metadata": {"labels": _relabelled(present, labels)}, **body}
        self.api.patch_object(SLICES, present, patch)

    # -- endpoints -------------------------------------------------------------------------------

    def _write_endpoints(self, service: JsonObject, backends: list[_Backend]) -> None:
        subsets = [_subset(ports, group) for ports, group in _by_ports(backends)]
        subsets = [
            subset for subset in subsets if subset.keys() & {"addresses", "notReadyAddresses"}
        ]
        labels = {**labels_of(service), "endpoints.kubernetes.io/managed-by": "endpoint-controller"}
        if spec_of(service).get("clusterIP") == "None":
            labels[HEADLESS] = ""
        present = self._endpoints.get(key_of(service))
        if present is None:
            metadata = {"name": name_of(service), "labels": labels}
            body: JsonObject = {"metadata": metadata}
            if subsets:
                body["subsets"] = subsets
            self.api.create(ENDPOINTS, body, namespace_of(service))
        elif (present.get("subsets") or []) != subsets or labels_of(present) != labels:
            metadata = {"labels": _relabelled(present, labels)}
            patch = {"metadata": metadata, "subsets": subsets or None}
            self.api.patch_object(ENDPOINTS, present, patch)

    def _forget(self, key: str) -> None:
        """Remove the Endpoints of a deleted service; the garbage collector removes its slices."""
        present = self._endpoints.get(key)
        if present is not None and "endpoints.kubernetes.io/managed-by" in labels_of(present):
            self.api.delete_object(ENDPOINTS, present)

    # -- events ----------------------------------------------------------------------------------

    def _service_changed(self, kind: str, service: JsonObject, old: JsonObject | None) -> None:
        if kind == "DELETED" or spec_of(service).get("selector"):
            self.queue.add(key_of(service))

    def _slice_changed(self, kind: str, obj: JsonObject, old: JsonObject | None) -> None:
        if kind == "DELETED" and labels_of(obj).get(MANAGED_BY) == MANAGER:
            self.queue.add(f"{namespace_of(obj)}/{labels_of(obj).get(SERVICE_NAME, '')}")

    def _pod_changed(self, kind: str, pod: JsonObject, old: JsonObject | None) -> None:
        namespace = namespace_of(pod)
        if not self._services.count(BY_NAMESPACE, namespace):
            return
        if old is not None and kind != "DELETED" and _shown(old) == _shown(pod):
            return
        pause_s = settling_s(self._pods.count(BY_NAMESPACE, namespace))
        for service in self._services.find(BY_NAMESPACE, namespace):
            selector = (spec_of(service).get("selector") or {}).items()
            if selector and any(
                version is not None and selector <= labels_of(version).items()
                for version in (pod, old)
            ):
                self.queue.add_after(key_of(service), pause_s)


def _relabelled(obj: JsonObject, labels: JsonObject) -> JsonObject:
    """Patch that gives an object exactly these labels."""
    return {**{key: None for key in labels_of(obj) if key not in labels}, **labels}


def _shown(pod: JsonObject) -> tuple[object, ...]:
    """The parts of a pod that its endpoints depend on."""
    return (
        labels_of(pod),
        status_of(pod).get("podIP"),
        is_ready(pod),
        is_finished(pod),
        is_deleting(pod),
    )


def _service_ports(service: JsonObject) -> Iterable[JsonObject]:
    for port in spec_of(service).get("ports") or ():
        target = port.get("targetPort")
        number = target if isinstance(target, int) and target else port.get("port")
        yield _port(port, int(number or 0))


def _ports(service: JsonObject, pod: JsonObject) -> tuple[JsonObject, ...]:
    """The service's ports resolved for the pod; named target ports that it lacks are omitted."""
    ports = []
    for port in spec_of(service).get("ports") or ():
        target = port.get("targetPort")
        number = target if isinstance(target, int) else _container_port(pod, str(target), port)
        if number:
            ports.append(_port(port, number))
    return tuple(ports)


def _port(port: JsonObject, number: int) -> JsonObject:
    body: JsonObject = {
        "name": port.get("name", ""),
        "protocol": port.get("protocol", "TCP"),
        "port": number,
    }
    if port.get("appProtocol"):
        body["appProtocol"] = port["appProtocol"]
    return body


def _container_port(pod: JsonObject, name: str, port: JsonObject) -> int:
    for container in spec_of(pod).get("containers") or ():
        for offered in container.get("ports") or ():
            is_same = offered.get("protocol", "TCP") == port.get("protocol", "TCP")
            if is_same and offered.get("name") == name:
                return int(offered.get("containerPort", 0))
    return 0


def _by_ports(backends: list[_Backend]) -> list[tuple[tuple[JsonObject, ...], list[_Backend]]]:
    groups: dict[bytes, tuple[tuple[JsonObject, ...], list[_Backend]]] = {}
    for backend in backends:
        groups.setdefault(encode(backend.ports), (backend.ports, []))[1].append(backend)
    return list(groups.values())


def _parts(group: list[_Backend]) -> Iterable[list[_Backend]]:
    return (group[start : start + MAX_ENDPOINTS] for start in range(0, len(group), MAX_ENDPOINTS))


def _target(pod: JsonObject) -> JsonObject:
    return {
        "kind": "Pod",
        "namespace": namespace_of(pod),
        "name": name_of(pod),
        "uid": uid_of(pod),
    }


def _subset(ports: tuple[JsonObject, ...], group: list[_Backend]) -> JsonObject:
    subset: JsonObject = {}
    for field, wanted in (("addresses", True), ("notReadyAddresses", False)):
        addresses = [
            {
                "ip": backend.address,
                "nodeName": node_name_of(backend.pod),
                "targetRef": _target(backend.pod),
            }
            for backend in group
            # Upstream: pods that are going are in slices only.
            if backend.is_serving is wanted and not is_deleting(backend.pod)
        ]
        if addresses:
            subset[field] = addresses
    if ports:
        subset["ports"] = [
            {key: value for key, value in port.items() if value != ""} for port in ports
        ]
    return subset
