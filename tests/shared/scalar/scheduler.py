"""The whole decision about one pod, in the shape of a recorded answer."""

from collections import Counter

from scalar import affinity, node_rules, spread
from scalar.labels import node_affinity

WEIGHTS = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "VolumeBinding": 1,
    "DynamicResources": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}

_NODE_FILTERS = {
    "NodeName": node_rules.node_name,
    "NodeUnschedulable": node_rules.node_unschedulable,
    "TaintToleration": node_rules.taint_toleration,
    "NodeAffinity": node_rules.node_affinity_filter,
    "NodePorts": node_rules.node_ports,
    "NodeResourcesFit": node_rules.node_resources_fit,
}


def answer(model, pod):
    order = node_order(model)
    names, narrowing = node_rules.named_nodes(pod), ["NodeAffinity"]
    if names is not None and not names:
        return _rejected_before_filtering(order, "NodeAffinity", "pod affinity terms conflict")
    asked_for = pod["spec"].get("nodeName")
    if model.reference.node_name_first and asked_for:
        narrowing = ["NodeName"] if names is None else ["NodeAffinity", "NodeName"]
        names = {asked_for} if names is None else names & {asked_for}
        if not names:
            reason = "node(s) didn't satisfy plugin(s) [NodeAffinity NodeName] simultaneously"
            return _rejected_before_filtering(order, "", reason)
    spreading, near = spread.filter_all(model, pod), affinity.filter_all(model, pod)
    feasible, rejected = [], {}
    for name in order:
        if names is not None and name not in names:
            reasons = [f"node(s) didn't satisfy plugin(s) [{' '.join(narrowing)}]"]
            rejected[name] = _rejection("", node_rules.UU, reasons)
            continue
        plugin, verdict = _first_rejection(model, pod, name, spreading, near)
        if verdict is None:
            feasible.append(name)
        else:
            rejected[name] = _rejection(plugin, *verdict)
    if not feasible:
        return _nothing_fits(order, rejected)
    scores = {name: {} for name in feasible}
    for plugin, result in _scores(model, pod, feasible).items():
        for name in feasible:
            scores[name][plugin] = result[name] * WEIGHTS[plugin]
    totals = {name: sum(scores[name].values()) for name in feasible}
    return {
        "feasible": feasible,
        "total": totals,
        "scores": scores,
        "rejected": rejected,
        "message": "",
    }


def node_order(model):
    """Round robin over zones, in the order in which they and their nodes appeared."""
    zones = {}
    for name, node in model.nodes.items():
        labels = node["metadata"].get("labels") or {}
        zone = tuple(
            labels.get(
                f"failure-domain.beta.kubernetes.io/{kind}",
                labels.get(f"topology.kubernetes.io/{kind}", ""),
            )
            for kind in ("region", "zone")
        )
        zones.setdefault(zone, []).append(name)
    order = []
    while any(zones.values()):
        order += [members.pop(0) for members in zones.values() if members]
    return order


def _first_rejection(model, pod, name, spreading, near):
    filters = dict(_NODE_FILTERS)
    if not model.reference.node_name_first:
        filters = {"NodeUnschedulable": filters["NodeUnschedulable"]} | filters
    for plugin, judge in filters.items():
        verdict = judge(model, pod, name)
        if verdict is not None:
            return plugin, verdict
    for plugin, verdicts in (("PodTopologySpread", spreading), ("InterPodAffinity", near)):
        if verdicts is not None and verdicts[name] is not None:
            return plugin, verdicts[name]
    return "NodeDeclaredFeatures", node_rules.node_declared_features(model, pod, name)


def _scores(model, pod, feasible):
    """Plugin -> node -> normalised score, of the plugins that do not skip."""

    def column(score):
        return {name: score(model, pod, name) for name in feasible}

    def normalized(score, **how):
        raw = column(score)
        return dict(zip(raw, node_rules.default_normalize(list(raw.values()), **how), strict=True))

    def of_amounts(judge, *, real):
        def score(model, pod, name):
            resources = node_rules.DEFAULT_RESOURCES
            return judge(node_rules.scored_amounts(model, pod, name, resources, real=real))

        return column(score)

    results = {
        "TaintToleration": normalized(node_rules.taint_toleration_score, reverse=True),
        "NodeResourcesFit": of_amounts(node_rules.least_allocated, real=False),
        "PodTopologySpread": spread.score_all(model, pod, feasible),
        "InterPodAffinity": affinity.score_all(model, pod, feasible),
        "DynamicResources": dict.fromkeys(feasible, 0),
        "ImageLocality": column(node_rules.image_locality),
    }
    if model.gates.StorageCapacityScoring:
        results["VolumeBinding"] = dict.fromkeys(feasible, 0)
    if node_affinity(pod).get(node_rules.PREFERRED) is not None:
        results["NodeAffinity"] = normalized(node_rules.node_affinity_score)
    if not node_rules.is_best_effort(pod):
        results["NodeResourcesBalancedAllocation"] = of_amounts(
            node_rules.balanced_allocation, real=True
        )
    return {plugin: scores for plugin, scores in results.items() if scores is not None}


def _rejection(plugin, code, reasons):
    return {"plugin": plugin, "code": code, "reasons": list(reasons)}


def _nothing_fits(order, rejected):
    counts = Counter(reason for item in rejected.values() for reason in item["reasons"])
    histogram = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    message = f"0/{len(order)} nodes are available: {histogram}."
    return {"feasible": [], "total": {}, "scores": {}, "rejected": rejected, "message": message}


def _rejected_before_filtering(order, plugin, reason):
    rejected = {name: _rejection(plugin, node_rules.UU, [reason]) for name in order}
    message = f"0/{len(order)} nodes are available: {reason}."
    return {"feasible": [], "total": {}, "scores": {}, "rejected": rejected, "message": message}
