"""Taints and tolerations."""

import re


def tolerates(toleration, taint, *, comparisons=False):
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    operator = toleration.get("operator", "")
    ours, theirs = toleration.get("value", ""), taint.get("value", "")
    if operator in ("", "Equal"):
        return ours == theirs
    if operator == "Exists":
        return True
    if operator in ("Gt", "Lt") and comparisons:
        numbers = [_canonical(theirs), _canonical(ours)]
        if None in numbers:
            return False
        return numbers[0] > numbers[1] if operator == "Gt" else numbers[0] < numbers[1]
    return False


def is_tolerated(pod, taint, *, comparisons=False):
    tolerations = pod["spec"].get("tolerations") or []
    return any(tolerates(toleration, taint, comparisons=comparisons) for toleration in tolerations)


def repels(pod, node, *, comparisons=False):
    return any(
        taint["effect"] in ("NoSchedule", "NoExecute")
        and not is_tolerated(pod, taint, comparisons=comparisons)
        for taint in node["spec"].get("taints") or []
    )


def count_disliked(pod, node):
    return sum(
        taint["effect"] == "PreferNoSchedule" and not is_tolerated(pod, taint)
        for taint in node["spec"].get("taints") or []
    )


def _canonical(text):
    if not re.fullmatch(r"0|-?[1-9][0-9]*", text, re.ASCII):
        return None
    return int(text) if -(2**63) <= int(text) < 2**63 else None
