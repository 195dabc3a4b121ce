"""A cluster as the scheduler's snapshot shows it: nodes, the pods on them, ports in use, images as
last seen.
"""

from copy import copy

from kubesched.config.features import DEFAULT_GATES
from scalar.quantities import in_units, parse
from scalar.requests import accounted, counts, nonzero


def host_ports(pod):
    """(ip, protocol, port) of sidecars, then app containers."""
    sidecars = [
        c for c in pod["spec"].get("initContainers") or [] if c.get("restartPolicy") == "Always"
    ]
    return [
        (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", port["hostPort"])
        for container in sidecars + (pod["spec"].get("containers") or [])
        for port in container.get("ports") or []
        if port.get("hostPort", 0) > 0
    ]


def priority(pod):
    return pod["spec"].get("priority") or 0


class Model:
    """Applies changes one by one; `refresh` is the moment a scheduling cycle begins."""

    def __init__(self, namespaces=None, gates=DEFAULT_GATES):
        self.gates, self.reference = gates, gates.reference
        self.namespaces = dict(namespaces or {})
        self.nodes = {}
        self.pods = {}
        self.ports = {}
        self.nominated = {}
        """Node -> pods that wait for room there."""
        self.stored = {}
        """Claims, volumes and what else storage plugins know: kind -> key -> object."""
        self._images = {}
        self._seen = {}
        self._changed = set()

    def branch(self, name):
        """A copy in which pods may come to this node and leave it."""
        other = copy(self)
        other.pods = {**self.pods, name: dict(self.pods.get(name, {}))}
        other.ports = {**self.ports, name: set(self.ports[name])}
        other._changed = set()
        return other

    @property
    def _by_container(self):
        return not self.reference.footprint_is_max_of_sums

    def set_node(self, node):
        name = node["metadata"]["name"]
        self._withdraw_images(name)
        self.nodes[name] = node
        if name not in self.ports:
            self.ports[name] = {p for pod in self.pods_on(name) for p in host_ports(pod)}
        for image in node.get("status", {}).get("images") or []:
            for image_name in image.get("names") or []:
                record = self._images.setdefault(image_name, (image.get("sizeBytes", 0), set()))
                record[1].add(name)
        self._changed.add(name)

    def remove_node(self, name):
        self._withdraw_images(name)
        del self.nodes[name]
        del self.ports[name]
        self._seen.pop(name, None)

    def _withdraw_images(self, name):
        for image_name, (_, holders) in list(self._images.items()):
            holders.discard(name)
            if not holders:
                del self._images[image_name]

    def add_pod(self, pod):
        name = pod["spec"]["nodeName"]
        self.pods.setdefault(name, {})[pod["metadata"]["uid"]] = pod
        if name in self.nodes:
            self.ports[name].update(host_ports(pod))
            self._changed.add(name)

    def remove_pod(self, pod):
        name = pod["spec"]["nodeName"]
        del self.pods[name][pod["metadata"]["uid"]]
        if name in self.nodes:
            # A set, not counts: what another pod shares is free as well.
            self.ports[name].difference_update(host_ports(pod))
            self._changed.add(name)

    def refresh(self):
        """Changed nodes see today's image counts; the others keep what they saw."""
        for name in self._changed & set(self.nodes):
            self._seen[name] = {
                image: (size, len(holders))
                for image, (size, holders) in self._images.items()
                if name in holders
            }
        self._changed.clear()

    # -- what plugins ask --------------------------------------------------------------------------

    def pods_on(self, name):
        return list(self.pods.get(name, {}).values())

    def all_pods(self):
        """(node, pod) of every pod on an existing node."""
        return [(node, pod) for name, node in self.nodes.items() for pod in self.pods_on(name)]

    def images_on(self, name):
        return self._seen.get(name, {})

    def allocatable(self, name):
        offered = self.nodes[name].get("status", {}).get("allocatable") or {}
        return {r: in_units(r, parse(raw)) for r, raw in offered.items() if counts(r)}

    def allowed_pods(self, name):
        offered = self.nodes[name].get("status", {}).get("allocatable") or {}
        return in_units("pods", parse(offered.get("pods", 0)))

    def requested(self, name):
        total = {}
        for pod in self.pods_on(name):
            for resource, amount in accounted(pod, by_container=self._by_container).items():
                total[resource] = total.get(resource, 0) + amount
        return total

    def nonzero_requested(self, name):
        pairs = [nonzero(pod, by_container=self._by_container) for pod in self.pods_on(name)]
        return {"cpu": sum(p[0] for p in pairs), "memory": sum(p[1] for p in pairs)}
