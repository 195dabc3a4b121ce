"""InterPodAffinity with default arguments: every pair of pods looked at anew."""

from scalar.labels import matches_selector

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HARD_WEIGHT = 1


def terms(pod, kind, strength):
    affinity = (pod["spec"].get("affinity") or {}).get(kind) or {}
    return affinity.get(strength) or []


def labels_of(thing):
    return thing["metadata"].get("labels") or {}


def existing_means(model, owner, term, target):
    """Does a term of a pod that is already somewhere mean the target?"""
    space = target["metadata"]["namespace"]
    selected = matches_selector(term.get("namespaceSelector"), model.namespaces.get(space) or {})
    return (space in _spaces(owner, term) or selected) and matches_selector(
        term.get("labelSelector"), labels_of(target)
    )


def incoming_means(model, pod, term, target):
    """Does a term of the pod to be placed mean the target?

    Upstream until 1.36: the namespace selector is also asked about no labels at all, and what it
    says then holds for every namespace. Since 1.37 only the empty selector means every namespace.
    """
    space, selector = target["metadata"]["namespace"], term.get("namespaceSelector")
    known = space in model.namespaces and matches_selector(selector, model.namespaces[space] or {})
    if model.reference.namespace_selectors_are_expanded:
        everywhere = selector is not None and not any(selector.values())
    else:
        everywhere = matches_selector(selector, {})
    means_space = space in _spaces(pod, term) or known or everywhere
    return means_space and matches_selector(term.get("labelSelector"), labels_of(target))


def _spaces(owner, term):
    listed = term.get("namespaces") or []
    if not listed and term.get("namespaceSelector") is None:
        return {owner["metadata"]["namespace"]}
    return set(listed)


# -- filter ----------------------------------------------------------------------------------------


def filter_all(model, pod):
    """Node -> None or (code, reasons); None for all nodes means that the plugin skips."""
    near, apart = terms(pod, "podAffinity", REQUIRED), terms(pod, "podAntiAffinity", REQUIRED)
    existing_anti, affinity, anti = {}, {}, {}
    for node, other in model.all_pods():
        for term in terms(other, "podAntiAffinity", REQUIRED):
            if existing_means(model, other, term, pod):
                _count(existing_anti, term, node)
        if near and all(incoming_means(model, pod, term, other) for term in near):
            for term in near:
                _count(affinity, term, node)
        for term in apart:
            if incoming_means(model, pod, term, other):
                _count(anti, term, node)
    if not existing_anti and not near and not apart:
        return None
    itself = bool(near) and all(incoming_means(model, pod, term, pod) for term in near)
    return {
        name: _judge(labels_of(node), near, apart, affinity, anti, existing_anti, itself)
        for name, node in model.nodes.items()
    }


def _judge(labels, near, apart, affinity, anti, existing_anti, itself):
    has_keys = all(term["topologyKey"] in labels for term in near)
    present = has_keys and all(_at(affinity, term, labels) for term in near)
    if not (present or (has_keys and not affinity and itself)) and near:
        return "UnschedulableAndUnresolvable", ["node(s) didn't match pod affinity rules"]
    if any(_at(anti, term, labels) for term in apart):
        return "Unschedulable", ["node(s) didn't match pod anti-affinity rules"]
    if any(existing_anti.get(pair, 0) > 0 for pair in labels.items()):
        return "Unschedulable", ["node(s) didn't satisfy existing pods anti-affinity rules"]
    return None


def _count(counts, term, node, amount=1):
    key = term["topologyKey"]
    if key in labels_of(node):
        pair = (key, labels_of(node)[key])
        counts[pair] = counts.get(pair, 0) + amount


def _at(counts, term, labels):
    key = term["topologyKey"]
    return key in labels and counts.get((key, labels[key]), 0) > 0


# -- score -----------------------------------------------------------------------------------------


def score_all(model, pod, feasible):
    """Node -> normalised score; None when the plugin skips."""
    near, apart = terms(pod, "podAffinity", PREFERRED), terms(pod, "podAntiAffinity", PREFERRED)
    sums = {}
    for node, other in model.all_pods():
        for sign, preferred in ((1, near), (-1, apart)):
            for item in preferred:
                if incoming_means(model, pod, item["podAffinityTerm"], other):
                    _count(sums, item["podAffinityTerm"], node, sign * item["weight"])
        for term in terms(other, "podAffinity", REQUIRED):
            if existing_means(model, other, term, pod):
                _count(sums, term, node, HARD_WEIGHT)
        for sign, kind in ((1, "podAffinity"), (-1, "podAntiAffinity")):
            for item in terms(other, kind, PREFERRED):
                if existing_means(model, other, item["podAffinityTerm"], pod):
                    _count(sums, item["podAffinityTerm"], node, sign * item["weight"])
    if not sums:
        return None
    raw = {
        name: sum(sums.get(pair, 0) for pair in labels_of(model.nodes[name]).items())
        for name in feasible
    }
    lowest, highest = min(raw.values(), default=0), max(raw.values(), default=0)
    span = highest - lowest
    return {
        name: int(100.0 * (float(score - lowest) / float(span))) if span else 0
        for name, score in raw.items()
    }
