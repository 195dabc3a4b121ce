"""The whole decision about one pod, in the shape of a recorded answer."""

from collections import Counter

from scalar import affinity, node_rules, spread, storage
from scalar.labels import node_affinity
from scalar.model import priority

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
_STORAGE = {
    "VolumeRestrictions": (storage.restrictions_pre_filter, storage.restrictions_filter),
    "NodeVolumeLimits": (
        storage.limits_pre_filter,
        lambda world, pod, node, _: storage.limits_filter(world, pod, node),
    ),
    "VolumeBinding": (storage.binding_pre_filter, storage.binding_filter),
    "VolumeZone": (storage.zone_pre_filter, storage.zone_filter),
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
    of_volumes = volume_rules(model, pod)
    for plugin, (_judge, state) in of_volumes.items():
        if isinstance(state, tuple):
            return _rejected_before_filtering(order, plugin, state[1])
    rules = _Rules(model, pod)
    feasible, rejected = [], {}
    nominated = pod.get("status", {}).get("nominatedNodeName")
    if nominated in model.nodes and rules.rejection(nominated) is None:
        order, names = [nominated], None
    for name in order:
        if names is not None and name not in names:
            reasons = [f"node(s) didn't satisfy plugin(s) [{' '.join(narrowing)}]"]
            rejected[name] = _rejection("", node_rules.UU, reasons)
            continue
        found = rules.rejection(name)
        if found is None:
            feasible.append(name)
        else:
            rejected[name] = _rejection(found[0], *found[1])
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


def rejection(model, pod, name):
    """(plugin, (code, reasons)), or None: beside the pods nominated to this node, then without."""
    return _Rules(model, pod).rejection(name)


def volume_rules(model, pod):
    """Plugin -> (filter, what its PreFilter found), of the storage plugins that do not skip."""
    if not model.stored:
        return {}
    world = _world(model)
    found = {name: (judge, ask(world, pod)) for name, (ask, judge) in _STORAGE.items()}
    return {name: rule for name, rule in found.items() if rule[1] != storage.SKIP}


def volumes_for(model, pod, name):
    """Volumes bound to claims, and claims to be provisioned, if the pod goes to this node."""
    claims = volume_rules(model, pod).get("VolumeBinding")
    if claims is None:
        return [], []
    _reasons, matched, provisioned = storage.find_volumes(_world(model), name, *claims[1])
    bound = [(volume["metadata"]["name"], _key(claim)) for claim, volume in matched]
    return sorted(bound), sorted(_key(claim) for claim, _capacity in provisioned)


def _key(obj):
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def _world(model):
    world = storage.World()
    world.nodes = model.nodes
    world.pods = {pod["metadata"]["uid"]: pod for _node, pod in model.all_pods()}
    vars(world).update(model.stored)
    return world


class _Rules:
    """All filters about one pod."""

    def __init__(self, model, pod):
        self._model, self._pod = model, pod
        self._spreading, self._near = spread.filter_all(model, pod), affinity.filter_all(model, pod)
        self._world, self._volumes = _world(model), volume_rules(model, pod)

    def rejection(self, name):
        own = self._pod["metadata"]["uid"]
        rivals = [
            rival
            for rival in self._model.nominated.get(name, ())
            if priority(rival) >= priority(self._pod) and rival["metadata"]["uid"] != own
        ]
        if rivals:
            crowded = self._model.branch(name)
            for rival in rivals:
                crowded.add_pod({**rival, "spec": {**rival["spec"], "nodeName": name}})
            found = _Rules(crowded, self._pod)._first(name)
            if found is not None:
                return found
        return self._first(name)

    def _first(self, name):
        model, pod = self._model, self._pod
        filters = dict(_NODE_FILTERS)
        if not model.reference.node_name_first:
            filters = {"NodeUnschedulable": filters["NodeUnschedulable"]} | filters
        for plugin, judge in filters.items():
            verdict = judge(model, pod, name)
            if verdict is not None:
                return plugin, verdict
        for plugin, (judge, state) in self._volumes.items():
            verdict = judge(self._world, pod, name, state)
            if verdict is not None:
                return plugin, (verdict[0], list(verdict[1:]))
        for plugin, verdicts in (
            ("PodTopologySpread", self._spreading),
            ("InterPodAffinity", self._near),
        ):
            if verdicts is not None and verdicts[name] is not None:
                return plugin, verdicts[name]
        verdict = node_rules.node_declared_features(model, pod, name)
        return None if verdict is None else ("NodeDeclaredFeatures", verdict)


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
    """Plugins that come later know nothing then, and PostFilter does not get to preemption."""
    rejected = {name: _rejection(plugin, node_rules.UU, [reason]) for name in order}
    message = f"0/{len(order)} nodes are available: {reason}."
    told = {"feasible": [], "total": {}, "scores": {}, "rejected": rejected, "message": message}
    return {**told, "early": True}
