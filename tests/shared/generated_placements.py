"""Random clusters with pending pods, reproducible from a seed: the nodes and pods of `generate`,
with bound pods and owners.
"""

from random import Random

from odd_objects import node, pod

from kubesched.lab.conformance.generate import requests
from kubesched.lab.conformance.generate_terms import chance, label_selector, namespaces
from kubesched.lab.conformance.generate_workloads import configuration

_SELECTORS = (
    {"app": "web"},
    {"app": "db"},
    {"app": "db", "tier": "back"},
    {"tier": "front"},
    {},
)


def placement(random, *, malformed=False, owned=False, configured=False):
    """A cluster and pending pods."""
    nodes = [node(random, f"n{i:03}") for i in range(random.randint(1, 12))]
    names = [node["metadata"]["name"] for node in nodes]
    bound = []
    for i in range(random.randint(0, 30)):
        manifest = _pod(random, f"p{i:04}", malformed, owned)
        # Bound pods were placed earlier, under other rules.
        manifest["spec"]["nodeName"] = random.choice(names)
        bound.append(_with_history(random, manifest))
    pending = [
        {"pod": _pinned(random, _pod(random, f"q{i:04}", malformed, owned), names)}
        for i in range(random.randint(4, 8))
    ]
    made = {"namespaces": namespaces(), "nodes": nodes, "pods": bound, "pending": pending}
    if owned:
        made |= _workloads(random)
    if configured:
        made["configuration"] = configuration(random)
    return made


def _pod(random, name, malformed, owned):
    """A pod; without `owned`, nothing that default spreading reads."""
    made = pod(random, name, malformed=malformed)
    if not owned:
        made["metadata"].pop("ownerReferences", None)
    return made


def placements(seed, count):
    """`count` clusters; each depends only on the seed and its number."""
    return [placement(Random(f"{seed}/{number}")) for number in range(count)]


def _pinned(random, pending, names):
    """Occasionally set the pod's node name, which is then mandatory."""
    if chance(random, 4):
        pending["spec"]["nodeName"] = random.choice(names)
    return pending


def _with_history(random, bound):
    """Changes after the binding: a deletion in progress, a resize."""
    if chance(random, 8):
        bound["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if chance(random, 10):
        first = bound["spec"]["containers"][0]
        status = {
            "containerStatuses": [
                {
                    "name": first["name"],
                    "allocatedResources": requests(random),
                    "resources": {"requests": requests(random)},
                }
            ]
        }
        if chance(random, 40):
            reason = random.choice(("Infeasible", "Deferred"))
            status["conditions"] = [
                {"type": "PodResizePending", "status": "True", "reason": reason}
            ]
        bound["status"] = status
    return bound


def _workloads(random):
    """Services and owners of pods in every namespace."""
    objects = {
        "services": [],
        "replicationControllers": [],
        "replicaSets": [],
        "statefulSets": [],
    }
    for namespace in ("default", "other", "third"):
        for number in range(random.randint(0, 2)):
            spec = {}
            if random.randint(1, 100) <= 80:
                spec["selector"] = random.choice(_SELECTORS)
            objects["services"].append(_object(namespace, f"svc{number}", spec))
        if random.randint(0, 1):
            spec = {"selector": random.choice(_SELECTORS[:4])}
            objects["replicationControllers"].append(_object(namespace, "rc", spec))
        if random.randint(0, 1):
            spec = {"selector": label_selector(random)}
            objects["replicaSets"].append(_object(namespace, "rs", spec))
        if random.randint(0, 1):
            spec = {"selector": label_selector(random)}
            objects["statefulSets"].append(_object(namespace, "ss", spec))
    return objects


def _object(namespace, name, spec):
    return {"metadata": {"namespace": namespace, "name": name}, "spec": spec}
