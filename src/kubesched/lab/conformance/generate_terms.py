"""Random selectors, affinity terms and spread constraints (see `generate`)."""

from __future__ import annotations

from random import Random

from kubesched.lab.conformance.sequences import Json

ZONE = "topology.kubernetes.io/zone"
_TOPOLOGY_KEYS = (ZONE, ZONE, "kubernetes.io/hostname", "topology.kubernetes.io/region", "disk")
_APPS = ("web", "db", "cache")
_TIERS = ("front", "back")
_NODE_NAMES = ("n000", "n001", "n002", "n999")
_NODE_LABEL_VALUES = {
    "disk": ("ssd", "hdd"),
    "gen": ("1", "5", "x", ""),
    ZONE: ("z1", "z2", "z3", "z9"),
}


def namespaces() -> Json:
    """The namespaces of pods, with labels for selectors."""
    return {"default": {"env": "prod"}, "other": {"env": "test", "team": "a"}, "third": {}}


def pod_labels(random: Random) -> Json:
    labels: Json = {}
    if chance(random, 85):
        labels["app"] = random.choice(_APPS)
    if chance(random, 40):
        labels["tier"] = random.choice(_TIERS)
    return labels


# -- node affinity ---------------------------------------------------------------------------------


def node_affinity(random: Random) -> Json:
    affinity: Json = {}
    if chance(random, 35):
        count = random.randint(1, 2)
        # Upstream: several terms by name leave several nodes, in random order.
        terms = [_node_term(random, by_name=count == 1) for _ in range(count)]
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if chance(random, 70):
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": random.randint(1, 100), "preference": _node_term(random, by_name=True)}
            for _ in range(random.randint(0, 3))
        ]
    return affinity


def _node_term(random: Random, *, by_name: bool) -> Json:
    term: Json = {}
    if chance(random, 75):
        term["matchExpressions"] = [_node_expression(random) for _ in range(random.randint(1, 2))]
    if by_name and chance(random, 15):
        operator, name = random.choice(("In", "NotIn")), random.choice(_NODE_NAMES)
        term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [name]}]
    return term


def _node_expression(random: Random) -> Json:
    key = random.choice(("disk", "gen", ZONE, ZONE, "kubernetes.io/hostname", "absent"))
    operator = random.choice(("In", "In", "NotIn", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    expression: Json = {"key": key, "operator": operator}
    if operator in ("Gt", "Lt"):
        expression["values"] = [random.choice(("0", "3", "07"))]
    elif operator in ("In", "NotIn"):
        values = _NODE_LABEL_VALUES.get(key, _NODE_NAMES)
        expression["values"] = [random.choice(values) for _ in range(random.randint(1, 6))]
    return expression


# -- pods beside pods ------------------------------------------------------------------------------


def pod_affinity(random: Random) -> Json:
    """The terms of podAffinity or podAntiAffinity."""
    affinity: Json = {}
    if chance(random, 55):
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = [
            _pod_term(random) for _ in range(random.choice((0, 1, 1, 2)))
        ]
    if chance(random, 55):
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": random.randint(1, 100), "podAffinityTerm": _pod_term(random)}
            for _ in range(random.choice((0, 1, 1, 2)))
        ]
    return affinity


def _pod_term(random: Random) -> Json:
    term: Json = {"topologyKey": random.choice(_TOPOLOGY_KEYS)}
    if chance(random, 92):
        term["labelSelector"] = label_selector(random)
        used = _keys(term["labelSelector"])
        for field, key in (("matchLabelKeys", "tier"), ("mismatchLabelKeys", "app")):
            if key not in used and chance(random, 15):
                term[field] = [key]
    if chance(random, 20):
        term["namespaces"] = random.sample(("default", "other", "third", "gone"), 2)
    if chance(random, 20):
        term["namespaceSelector"] = _namespace_selector(random)
    return term


def label_selector(random: Random) -> Json:
    selector: Json = {}
    if chance(random, 65):
        selector["matchLabels"] = {"app": random.choice(_APPS)}
    if chance(random, 35):
        operator = random.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        expression: Json = {"key": random.choice(("tier", "app")), "operator": operator}
        if operator in ("In", "NotIn"):
            expression["values"] = [random.choice((*_APPS, *_TIERS)) for _ in range(2)]
        selector["matchExpressions"] = [expression]
    return selector


def _keys(selector: Json) -> set[str]:
    """The label keys of a selector, which must not be named in label keys as well."""
    expressions = selector.get("matchExpressions", ())
    return {*selector.get("matchLabels", ()), *(expression["key"] for expression in expressions)}


def _namespace_selector(random: Random) -> Json:
    return random.choice(
        (
            {},
            {"matchLabels": {"env": "test"}},
            {"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["test"]}]},
            {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
        )
    )


def spread_constraints(random: Random) -> list[Json]:
    """One to three constraints; a topology key appears once per `whenUnsatisfiable` value."""
    pairs = [
        (key, action)
        for key in dict.fromkeys(_TOPOLOGY_KEYS)
        for action in ("DoNotSchedule", "ScheduleAnyway")
    ]
    return [
        _spread_constraint(random, key, action)
        for key, action in random.sample(pairs, random.randint(1, 3))
    ]


def _spread_constraint(random: Random, key: str, action: str) -> Json:
    constraint: Json = {
        "maxSkew": random.choice((1, 1, 2, 3)),
        "topologyKey": key,
        "whenUnsatisfiable": action,
    }
    if chance(random, 92):
        constraint["labelSelector"] = label_selector(random)
    if action == "DoNotSchedule" and chance(random, 25):
        constraint["minDomains"] = random.randint(1, 4)
    if chance(random, 25):
        constraint["nodeAffinityPolicy"] = random.choice(("Honor", "Ignore"))
    if chance(random, 25):
        constraint["nodeTaintsPolicy"] = random.choice(("Honor", "Ignore"))
    if "labelSelector" in constraint and chance(random, 15):
        keys = {"tier", "rev"} - _keys(constraint["labelSelector"])
        constraint["matchLabelKeys"] = [random.choice(sorted(keys))]
    return constraint


def chance(random: Random, percent: int) -> bool:
    return random.randint(1, 100) <= percent
