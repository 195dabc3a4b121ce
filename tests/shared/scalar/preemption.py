"""DefaultPreemption: one node after the other, one pod after the other."""

from collections import Counter
from datetime import datetime

from scalar import scheduler
from scalar.labels import is_empty, matches_selector
from scalar.model import priority

NEVER = "not eligible due to preemptionPolicy=Never."
STILL_TERMINATING = "not eligible due to a terminating pod on the nominated node."
NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"


def preempt(model, pod, rejected, budgets, now):
    """(message, candidates): node -> (UIDs of the victims, number of violations), the best ones.

    Candidates are None if the pod may not preempt.
    """
    reason = why_not(model, pod, rejected)
    if reason:
        return reason, None
    verdicts, candidates = {}, {}
    for name, verdict in rejected.items():
        if verdict["code"] != "Unschedulable":
            verdicts[name] = [NOT_HELPFUL]
            continue
        found = victims_on(model, pod, name, budgets, now)
        if isinstance(found, list):
            verdicts[name] = found
        else:
            candidates[name] = found
    if not candidates:
        counts = Counter(reason for reasons in verdicts.values() for reason in reasons)
        histogram = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
        return f"0/{len(model.nodes)} nodes are available: {histogram}.", {}
    costs = {name: cost(*found, now) for name, found in candidates.items()}
    least = min(costs.values())
    return "", {
        name: ([victim["metadata"]["uid"] for victim in victims], violations)
        for name, (victims, violations) in candidates.items()
        if costs[name] == least
    }


def why_not(model, pod, rejected):
    if pod["spec"].get("preemptionPolicy") == "Never":
        return NEVER
    nominated = pod.get("status", {}).get("nominatedNodeName")
    if nominated not in model.nodes or rejected[nominated]["code"] != "Unschedulable":
        return ""
    going = any(
        priority(other) < priority(pod) and is_terminating_by_preemption(other)
        for other in model.pods_on(nominated)
    )
    return STILL_TERMINATING if going else ""


def is_terminating_by_preemption(pod):
    conditions = pod.get("status", {}).get("conditions") or []
    target = next((each for each in conditions if each["type"] == "DisruptionTarget"), {})
    return bool(pod["metadata"].get("deletionTimestamp")) and (
        target.get("status"),
        target.get("reason"),
    ) == ("True", "PreemptionByScheduler")


def victims_on(model, pod, name, budgets, now):
    """(victims, number of violations), or reasons."""
    lower = [other for other in model.pods_on(name) if priority(other) < priority(pod)]
    if not lower:
        return [NO_VICTIMS]
    model = model.branch(name)
    for other in lower:
        model.remove_pod(other)
    verdict = scheduler.rejection(model, pod, name)
    if verdict is not None:
        return list(verdict[1][1])
    lower.sort(key=lambda other: (-priority(other), started(other, now)))
    violating = violations(lower, budgets, stops=model.reference.budgets_stop_at_first_violation)
    victims = []
    for other in sorted(lower, key=lambda other: id(other) not in violating):
        model.add_pod(other)
        if scheduler.rejection(model, pod, name) is not None:
            model.remove_pod(other)
            victims.append(other)
    ordered = [other for other in lower if any(other is victim for victim in victims)]
    return ordered, sum(id(victim) in violating for victim in victims)


def violations(pods, budgets, *, stops):
    """Identities of the pods whose eviction violates a budget; the most important pod is first."""
    left = [(budget.get("status") or {}).get("disruptionsAllowed", 0) for budget in budgets]
    results = set()
    for pod in pods:
        for number, budget in enumerate(budgets):
            if is_about(budget, pod):
                left[number] -= 1
                if left[number] < 0:
                    results.add(id(pod))
                    if stops:
                        break
    return results


def is_about(budget, pod):
    labels, selector = pod["metadata"].get("labels"), budget["spec"].get("selector")
    return (
        bool(labels)
        and budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
        and not is_empty(selector)
        and matches_selector(selector, labels)
        and pod["metadata"]["name"] not in ((budget.get("status") or {}).get("disruptedPods") or {})
    )


def cost(victims, violating, now):
    """Of evicting these pods, the most important one first; what costs least is done."""
    highest = max(map(priority, victims))
    earliest = min(started(victim, now) for victim in victims if priority(victim) == highest)
    return (
        violating,
        priority(victims[0]),
        sum(priority(victim) + 2**31 for victim in victims),
        len(victims),
        -earliest,
    )


def started(pod, now):
    text = pod.get("status", {}).get("startTime")
    return now if text is None else datetime.fromisoformat(text).timestamp()
