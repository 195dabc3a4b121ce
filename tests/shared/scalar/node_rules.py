"""Filters and scores that look at one node: what each plugin says about one pod and one node.

A filter returns None (passes) or (code, reasons); a raw score is an integer.
"""

import math

from scalar.labels import matches_node_term, matches_required, matches_terms, node_affinity
from scalar.model import host_ports
from scalar.requests import DEFAULTS, is_scalar, pod_requests, vector
from scalar.taints import count_disliked, is_tolerated, repels

U = "Unschedulable"
UU = "UnschedulableAndUnresolvable"
SKIP = "Skip"

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


# -- filters ---------------------------------------------------------------------------------------


def node_unschedulable(model, pod, name):
    taint = {"key": "node.kubernetes.io/unschedulable", "value": "", "effect": "NoSchedule"}
    if model.nodes[name]["spec"].get("unschedulable") and not is_tolerated(pod, taint):
        return UU, ["node(s) were unschedulable"]
    return None


def node_name(model, pod, name):
    if pod["spec"].get("nodeName") not in (None, "", name):
        return UU, ["node(s) didn't match the requested node name"]
    return None


def taint_toleration(model, pod, name):
    if repels(pod, model.nodes[name]):
        return UU, ["node(s) had untolerated taint(s)"]
    return None


def node_affinity_filter(model, pod, name, added=None):
    node = model.nodes[name]
    required = (added or {}).get(REQUIRED)
    if required is not None and not matches_terms(required.get("nodeSelectorTerms"), node):
        return UU, ["node(s) didn't match scheduler-enforced node affinity"]
    if not matches_required(pod, node):
        return UU, ["node(s) didn't match Pod's node affinity/selector"]
    return None


def named_nodes(pod):
    """The nodes that the required terms name, all together; None if some term names none."""
    required = node_affinity(pod).get(REQUIRED)
    terms = (required or {}).get("nodeSelectorTerms") or []
    results = set()
    for term in terms:
        sets = [
            set(field.get("values") or [])
            for field in term.get("matchFields") or []
            if field["key"] == "metadata.name" and field["operator"] == "In"
        ]
        if not sets:
            return None
        results |= set.intersection(*sets)
    return results if terms else None


def node_ports(model, pod, name):
    for ip, protocol, port in host_ports(pod):
        for other_ip, other_protocol, other_port in model.ports[name]:
            same = (protocol, port) == (other_protocol, other_port)
            if same and (ip == other_ip or "0.0.0.0" in (ip, other_ip)):
                return U, ["node(s) didn't have free ports for the requested pod ports"]
    return None


def fit_requests(pod):
    return {name: max(amount, 0) for name, amount in vector(pod_requests(pod)).items()}


def node_resources_fit(model, pod, name, ignored=(), ignored_groups=()):
    reasons, hopeless = [], False
    if len(model.pods_on(name)) + 1 > model.allowed_pods(name):
        reasons.append("Too many pods")
    offered, taken, wanted = model.allocatable(name), model.requested(name), fit_requests(pod)
    native = ["cpu", "memory", "ephemeral-storage"]
    for resource in native + [item for item in wanted if item not in native]:
        amount = wanted.get(resource, 0)
        extended = "/" in resource and "kubernetes.io/" not in resource
        if extended and (resource in ignored or resource.split("/")[0] in ignored_groups):
            continue
        if amount > 0 and amount > offered.get(resource, 0) - taken.get(resource, 0):
            reasons.append(f"Insufficient {resource}")
            hopeless = hopeless or amount > offered.get(resource, 0)
    return ((UU if hopeless else U), reasons) if reasons else None


_FEATURES = (
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
    "UserNamespacesHostNetworkSupport",
    "VolumeBindMountOptions",
)


def required_features(pod):
    spec, result = pod["spec"], set()
    rules = [
        rule
        for container in (spec.get("containers") or []) + (spec.get("initContainers") or [])
        for rule in container.get("restartPolicyRules") or []
    ]
    if any(rule["action"] == "RestartAllContainers" for rule in rules):
        result.add("RestartAllContainersOnContainerExits")
    every = ("containers", "initContainers", "ephemeralContainers")
    mounts = [
        m for kind in every for c in spec.get(kind) or [] for m in c.get("volumeMounts") or []
    ]
    if any(mount.get("bindMountOptions") for mount in mounts):
        result.add("VolumeBindMountOptions")
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        result.add("UserNamespacesHostNetworkSupport")
    return result


def node_declared_features(model, pod, name):
    declared = set(model.nodes[name].get("status", {}).get("declaredFeatures") or [])
    if required_features(pod) <= declared & set(_FEATURES):
        return None
    return UU, ["node(s) didn't match Pod's required features"]


# -- scores ----------------------------------------------------------------------------------------


def taint_toleration_score(model, pod, name):
    return count_disliked(pod, model.nodes[name])


def prefers_nodes(pod, added=None):
    own = node_affinity(pod).get(PREFERRED)
    return own is not None or bool((added or {}).get(PREFERRED))


def node_affinity_score(model, pod, name, added=None):
    """Raises Malformed when a preferred term cannot be read."""
    terms = ((added or {}).get(PREFERRED) or []) + (node_affinity(pod).get(PREFERRED) or [])
    total = 0
    for term in terms:
        if term["weight"] and matches_node_term(term["preference"], model.nodes[name]):
            total += term["weight"]
    return total


DEFAULT_RESOURCES = (("cpu", 1), ("memory", 1))


def scored_amounts(model, pod, name, resources, *, real):
    """(used, with the pod, offered, weight) of each resource that takes part on this node."""
    if real:
        wanted = vector(pod_requests(pod, use_status=True))
        used = model.requested(name)
    else:
        wanted = vector(pod_requests(pod, skip_pod_level=True, defaults=DEFAULTS))
        used = {**model.requested(name), **model.nonzero_requested(name)}
    results = []
    for resource, weight in resources:
        request = wanted.get(resource, 0)
        offered = model.allocatable(name).get(resource, 0)
        if offered and (request or not is_scalar(resource)):
            taken = used.get(resource, 0)
            results.append((taken, taken + request, offered, weight))
    return results


def least_allocated(amounts):
    shares = [
        (0 if wanted > offered else (offered - wanted) * 100 // offered, weight)
        for _, wanted, offered, weight in amounts
    ]
    return _mean(shares)


def most_allocated(amounts):
    return _mean([(min(w, offered) * 100 // offered, weight) for _, w, offered, weight in amounts])


def requested_to_capacity_ratio(amounts, shape):
    points = [(utilization, score * 10) for utilization, score in shape]
    shares = []
    for _, wanted, offered, weight in amounts:
        utilization = 100 if wanted > offered else wanted * 100 // offered
        share = broken_line(points, utilization)
        if share > 0:
            shares.append((share, weight))
    weights = sum(weight for _, weight in shares)
    if not weights:
        return 0
    return math.floor(sum(share * weight for share, weight in shares) / weights + 0.5)


def broken_line(points, at):
    for index, (right, high) in enumerate(points):
        if at <= right:
            if index == 0:
                return high
            left, low = points[index - 1]
            return low + int((high - low) * (at - left) / (right - left))
    return points[-1][1]


def _mean(shares):
    weights = sum(weight for _, weight in shares)
    return sum(share * weight for share, weight in shares) // weights if weights else 0


def is_best_effort(pod, resources=DEFAULT_RESOURCES):
    wanted = vector(pod_requests(pod, use_status=True))
    return all(not wanted.get(resource) for resource, _ in resources)


def balanced_allocation(amounts):
    before = _balance([(used, offered) for used, _, offered, _ in amounts])
    after = _balance([(wanted, offered) for _, wanted, offered, _ in amounts])
    return 50 + (50 + after - before) // 2


def _balance(pairs):
    fractions = [min(float(amount) / float(offered), 1.0) for amount, offered in pairs]
    if len(fractions) < 2:
        deviation = 0.0
    elif len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    else:
        mean = sum_in_order(fractions) / float(len(fractions))
        squares = sum_in_order([(f - mean) * (f - mean) for f in fractions])
        deviation = math.sqrt(squares / float(len(fractions)))
    return int((1.0 - deviation) * 100.0)


def sum_in_order(numbers):
    total = 0.0
    for number in numbers:
        total += number
    return total


def image_locality(model, pod, name):
    spec, images = pod["spec"], model.images_on(name)
    containers = (spec.get("initContainers") or []) + (spec.get("containers") or [])
    wanted = [container["image"] for container in containers]
    wanted += [v["image"]["reference"] for v in spec.get("volumes") or [] if v.get("image")]
    total = 0
    for reference in wanted:
        size, holders = images.get(_with_tag(reference), (0, 0))
        total += int(float(size) * (float(holders) / float(len(model.nodes))))
    count = len(wanted) if model.reference.image_volumes_count else len(containers)
    low, high = 23 << 20, (1000 << 20) * count
    if total < low:
        total = low
    elif total > high:
        total = high
    return (
        int(100 * (total - low) / (high - low))
        if high < low
        else 100 * (total - low) // (high - low)
    )


def _with_tag(name):
    return name + ":latest" if name.rfind(":") <= name.rfind("/") else name


# -- normalisation ---------------------------------------------------------------------------------


def default_normalize(scores, *, reverse=False):
    highest = max([0, *scores])
    if highest == 0:
        return [100 if reverse else score for score in scores]
    scaled = [100 * score // highest for score in scores]
    return [100 - score for score in scaled] if reverse else scaled
