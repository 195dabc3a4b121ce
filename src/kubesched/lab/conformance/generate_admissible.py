"""Reduces a generated pod to what an API server admits, with only the requested features."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

from kubesched.lab.conformance.generate_devices import EXTENDED
from kubesched.lab.conformance.generate_objects import PRIORITIES
from kubesched.lab.conformance.generate_volumes import pod_volumes
from kubesched.lab.conformance.sequences import Json

OTHER_PROFILE = "other-scheduler"
"""Name of the second profile, for pods that request it."""

_NOT_OVERCOMMITTED = ("example.com/gpu", "example.com/fpga", "hugepages-2Mi")


def admissible(pod: Json, features: Collection[str], random: Random) -> Json:
    """The generated pod, admissible and with only the requested features."""
    spec, metadata = pod["spec"], pod["metadata"]
    metadata.pop("uid", None)
    spec["terminationGracePeriodSeconds"] = 0
    for name in ("hostUsers", "volumes"):
        spec.pop(name, None)
    if "resources" not in features:
        spec.pop("overhead", None)
    if not (spec.get("hostNetwork") and "ports" in features):
        spec.pop("hostNetwork", None)
    pod_level = spec.pop("resources", None)
    containers = [*spec["containers"], *spec.get("initContainers", ())]
    seen_ports: set[tuple[int, str]] = set()
    for container in containers:
        _tidy_container(container, features, seen_ports, on_host="hostNetwork" in spec)
    if pod_level and "resources" in features:
        _put_pod_level(spec, containers, random)
    if "taints" in features:
        spec["tolerations"] = [_tidy_toleration(t) for t in spec.get("tolerations", ())]
    else:
        spec.pop("tolerations", None)
    if "default-spread" not in features:
        metadata.pop("ownerReferences", None)
    if "topology-spread" not in features:
        spec.pop("topologySpreadConstraints", None)
    for constraint in spec.get("topologySpreadConstraints", ()):
        _tidy_constraint(constraint)
    _tidy_affinity(spec, features)
    if "pod-affinity" in features:
        _add_label_keys(spec.get("affinity", {}), random)
    if "priorities" in features and random.random() < 0.4:
        spec["priorityClassName"] = random.choice(PRIORITIES)
    if "volumes" in features and random.random() < 0.18:
        spec["volumes"] = pod_volumes(random)
        if random.random() < 0.6:
            # Makes volumes the deciding constraint more often.
            spec.pop("affinity", None)
            spec.pop("topologySpreadConstraints", None)
    if "profiles" in features and random.random() < 0.3:
        spec["schedulerName"] = OTHER_PROFILE
    return {"apiVersion": "v1", "kind": "Pod", **pod}


def _tidy_container(
    container: Json, features: Collection[str], seen_ports: set[tuple[int, str]], *, on_host: bool
) -> None:
    container.pop("restartPolicyRules", None)
    if container.get("restartPolicy") != "Always":
        container.pop("restartPolicy", None)
    if "images" not in features:
        container["image"] = "reg.example/a:1"
    requests = container.get("resources", {}).get("requests", {})
    if "resources" not in features:
        for name in _NOT_OVERCOMMITTED:
            requests.pop(name, None)
    if "hugepages-2Mi" in requests:
        requests.setdefault("memory", "64Mi")
    limits = {name: requests[name] for name in _NOT_OVERCOMMITTED if name in requests}
    if limits:
        container["resources"]["limits"] = limits
    ports = []
    for port in container.pop("ports", ()) if "ports" in features else ():
        if on_host:
            # Host network: both ports are the same.
            port["hostPort"] = port["containerPort"] = port["hostPort"] or 80
        key = (port["hostPort"], port.get("protocol", "TCP"))
        # A pod may request a port only once.
        if key not in seen_ports:
            seen_ports.add(key)
            ports.append(port)
    container.pop("ports", None)
    if ports:
        container["ports"] = ports


def _put_pod_level(spec: Json, containers: list[Json], random: Random) -> None:
    """Set pod-level requests; containers request none of the same resources."""
    for container in containers:
        requests = container.get("resources", {}).get("requests", {})
        if any(name in requests for name in _NOT_OVERCOMMITTED):
            return
        for name in ("cpu", "memory"):
            requests.pop(name, None)
    spec["resources"] = {
        "requests": {
            "cpu": random.choice(("100m", "1", "1500m")),
            "memory": random.choice(("100Mi", "1Gi")),
        }
    }


def _tidy_toleration(toleration: Json) -> Json:
    if toleration["operator"] == "Gt" or "key" not in toleration:
        toleration = {**toleration, "operator": "Exists"}
    if toleration["operator"] == "Exists":
        toleration.pop("value", None)
    return toleration


def _tidy_constraint(constraint: Json) -> None:
    """A key must not be in both the selector and the label keys."""
    selector = constraint.get("labelSelector", {})
    selected = {*selector.get("matchLabels", ())}
    selected |= {expression["key"] for expression in selector.get("matchExpressions", ())}
    if selected & set(constraint.get("matchLabelKeys", ())):
        del constraint["matchLabelKeys"]


def _tidy_affinity(spec: Json, features: Collection[str]) -> None:
    affinity = spec.get("affinity", {})
    if "node-affinity" not in features:
        affinity.pop("nodeAffinity", None)
        spec.pop("nodeSelector", None)
    if "pod-affinity" not in features:
        affinity.pop("podAffinity", None)
        affinity.pop("podAntiAffinity", None)
    required = affinity.get("nodeAffinity", {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = required["nodeSelectorTerms"] if required else []
    if len(terms) > 1:
        # Upstream: several terms by name leave several nodes, in random order.
        for term in terms:
            term.pop("matchFields", None)


def _add_label_keys(affinity: Json, random: Random) -> None:
    """Occasionally add terms that take values from the pod's own labels."""
    for kind in ("podAffinity", "podAntiAffinity"):
        parts = affinity.get(kind, {})
        required = parts.get("requiredDuringSchedulingIgnoredDuringExecution", ())
        preferred = parts.get("preferredDuringSchedulingIgnoredDuringExecution", ())
        for term in (*required, *(weighted["podAffinityTerm"] for weighted in preferred)):
            selector = term.get("labelSelector")
            if selector is None or random.random() > 0.2:
                continue
            used = {*selector.get("matchLabels", ())}
            used |= {expression["key"] for expression in selector.get("matchExpressions", ())}
            for field, key in (("matchLabelKeys", "tier"), ("mismatchLabelKeys", "app")):
                if key not in used and random.random() < 0.6:
                    term[field] = [key]


def features_of(pod: Json) -> tuple[str, ...]:
    """The features that a pod exercises."""
    spec = pod["spec"]
    affinity = spec.get("affinity", {})
    containers = [*spec["containers"], *spec.get("initContainers", ())]
    features = {
        "resources": "resources" in spec or any("resources" in c for c in containers),
        "node-affinity": "nodeAffinity" in affinity or "nodeSelector" in spec,
        "taints": bool(spec.get("tolerations")),
        "pod-affinity": "podAffinity" in affinity or "podAntiAffinity" in affinity,
        "topology-spread": "topologySpreadConstraints" in spec,
        "default-spread": "ownerReferences" in pod["metadata"],
        "ports": any("ports" in c for c in containers),
        "images": len({c["image"] for c in containers}) > 1,
        "priorities": "priorityClassName" in spec,
        "gates": "schedulingGates" in spec,
        "volumes": "volumes" in spec,
        "profiles": spec.get("schedulerName") == OTHER_PROFILE,
        "devices": "resourceClaims" in spec or _asks_for_extended(containers),
    }
    return tuple(name for name, present in features.items() if present)


def _asks_for_extended(containers: list[Json]) -> bool:
    requests = (container.get("resources", {}).get("requests", {}) for container in containers)
    return any(EXTENDED in wanted for wanted in requests)
