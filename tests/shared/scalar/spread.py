"""PodTopologySpread without default constraints: counted anew for every pod."""

import math
from dataclasses import dataclass

from scalar.labels import is_empty, matches_required, matches_selector
from scalar.taints import repels

HOSTNAME = "kubernetes.io/hostname"
MISSING = "node(s) didn't match pod topology spread constraints (missing required label)"
UNEVEN = "node(s) didn't match pod topology spread constraints"


@dataclass
class Constraint:
    key: str
    max_skew: int
    min_domains: int
    selector: dict | None
    own: dict
    honors_affinity: bool
    honors_taints: bool

    def matches(self, labels):
        return matches_selector(self.selector, labels) and all(
            labels.get(key) == value for key, value in self.own.items()
        )

    def counts_nothing(self):
        """Upstream: a selector that would match every pod counts none."""
        return is_empty(self.selector) and not self.own

    def count(self, model, pod, name):
        if self.counts_nothing():
            return 0
        return sum(
            other["metadata"]["namespace"] == pod["metadata"]["namespace"]
            and not other["metadata"].get("deletionTimestamp")
            and self.matches(other["metadata"].get("labels") or {})
            for other in model.pods_on(name)
        )

    def admits(self, pod, node):
        if self.honors_affinity and not matches_required(pod, node):
            return False
        return not (self.honors_taints and repels(pod, node))


def constraints(pod, action):
    labels = pod["metadata"].get("labels") or {}
    return [
        Constraint(
            key=constraint["topologyKey"],
            max_skew=constraint["maxSkew"],
            min_domains=constraint.get("minDomains") or 1,
            selector=constraint.get("labelSelector"),
            own={
                key: labels[key] for key in constraint.get("matchLabelKeys") or [] if key in labels
            },
            honors_affinity=(constraint.get("nodeAffinityPolicy") or "Honor") == "Honor",
            honors_taints=(constraint.get("nodeTaintsPolicy") or "Ignore") == "Honor",
        )
        for constraint in pod["spec"].get("topologySpreadConstraints") or []
        if constraint["whenUnsatisfiable"] == action
    ]


def labels_of(model, name):
    return model.nodes[name]["metadata"].get("labels") or {}


def filter_all(model, pod):
    """Node -> None or (code, reasons); None for all nodes means that the plugin skips."""
    hard = constraints(pod, "DoNotSchedule")
    if not hard:
        return None
    domains = []
    for item in hard:
        results = {}
        for name, node in model.nodes.items():
            labels = labels_of(model, name)
            if all(other.key in labels for other in hard) and item.admits(pod, node):
                value = labels[item.key]
                results[value] = results.get(value, 0) + item.count(model, pod, name)
        domains.append(results)
    return {name: _judge(model, pod, name, hard, domains) for name in model.nodes}


def _judge(model, pod, name, hard, domains):
    labels = labels_of(model, name)
    for item, result in zip(hard, domains, strict=True):
        if item.key not in labels:
            return "UnschedulableAndUnresolvable", [MISSING]
        lowest = 0 if len(result) < item.min_domains else min(result.values(), default=0)
        itself = item.matches(pod["metadata"].get("labels") or {})
        if result.get(labels[item.key], 0) + itself - lowest > item.max_skew:
            return "Unschedulable", [UNEVEN]
    return None


def score_all(model, pod, feasible):
    """Node -> normalised score; None when the plugin skips."""
    soft = constraints(pod, "ScheduleAnyway")
    if not soft:
        return None
    ignored = [n for n in feasible if any(c.key not in labels_of(model, n) for c in soft)]
    counted = [name for name in feasible if name not in ignored]
    parts = []
    for item in soft:
        if item.key == HOSTNAME:
            parts.append((item, ln(len(counted) + 2), None))
            continue
        totals = dict.fromkeys((labels_of(model, name)[item.key] for name in counted), 0)
        for name, node in model.nodes.items():
            labels = labels_of(model, name)
            complete = all(other.key in labels for other in soft)
            if complete and item.admits(pod, node) and labels[item.key] in totals:
                totals[labels[item.key]] += item.count(model, pod, name)
        parts.append((item, ln(len(totals) + 2), totals))
    raw = {}
    for name in counted:
        score = 0.0
        for part, weight, totals in parts:
            result = (
                part.count(model, pod, name)
                if totals is None
                else totals[labels_of(model, name)[part.key]]
            )
            score += float(result) * weight + float(part.max_skew - 1)
        raw[name] = math.floor(score + 0.5)
    lowest, highest = min(raw.values(), default=0), max(raw.values(), default=0)
    final = {
        name: 100 if highest == 0 else 100 * (highest + lowest - score) // highest
        for name, score in raw.items()
    }
    return {name: final.get(name, 0) for name in feasible}


def ln(x):
    """The natural logarithm exactly as Go computes it."""
    f1, ki = math.frexp(float(x))
    if f1 < math.sqrt(2) / 2:
        f1, ki = f1 * 2, ki - 1
    f, k = f1 - 1, float(ki)
    s = f / (2 + f)
    s2 = s * s
    s4 = s2 * s2
    t1 = s2 * (
        6.666666666666735130e-01
        + s4
        * (
            2.857142874366239149e-01
            + s4 * (1.818357216161805012e-01 + s4 * 1.479819860511658591e-01)
        )
    )
    t2 = s4 * (
        3.999999999940941908e-01 + s4 * (2.222219843214978396e-01 + s4 * 1.531383769920937332e-01)
    )
    r = t1 + t2
    half = 0.5 * f * f
    high, low = 6.93147180369123816490e-01, 1.90821492927058770002e-10
    return k * high - ((half - (s * (half + r) + k * low)) - f)
