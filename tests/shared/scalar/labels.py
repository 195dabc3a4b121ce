"""Label selectors and node selectors, matched one object at a time."""

import re

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


class Malformed(Exception):
    """The selector cannot be read."""


def matches_selector(selector, labels):
    """An API label selector; None selects nothing."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(
        _requirement(expression, labels) for expression in selector.get("matchExpressions") or []
    )


def is_empty(selector):
    return selector is not None and not (
        selector.get("matchLabels") or selector.get("matchExpressions")
    )


def matches_node_term(term, node):
    """Malformed terms raise; a term without any condition matches nothing."""
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    for expression in expressions:
        _check(expression)
    for field in fields:
        if field["operator"] not in ("In", "NotIn") or len(field.get("values") or []) != 1:
            raise Malformed
    labels = node["metadata"].get("labels") or {}
    return all(_requirement(expression, labels) for expression in expressions) and all(
        _field(field, node) for field in fields
    )


def matches_terms(terms, node):
    """One well-formed term is enough."""

    def matches(term):
        try:
            return matches_node_term(term, node)
        except Malformed:
            return False

    return any(matches(term) for term in terms or [])


def matches_required(pod, node):
    """The pod's nodeSelector and required node affinity together."""
    labels = node["metadata"].get("labels") or {}
    for key, value in (pod["spec"].get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            return False
    required = node_affinity(pod).get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or matches_terms(required.get("nodeSelectorTerms"), node)


def node_affinity(pod):
    return (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}


def _field(requirement, node):
    result = node["metadata"]["name"] if requirement["key"] == "metadata.name" else ""
    return (result == requirement["values"][0]) == (requirement["operator"] == "In")


def _requirement(requirement, labels):
    key, operator = requirement["key"], requirement["operator"]
    values, result = requirement.get("values") or [], labels.get(requirement["key"])
    match operator:
        case "In":
            return result in values
        case "NotIn":
            return result not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    number = _integer(result)
    if number is None:
        return False
    return number > int(values[0]) if operator == "Gt" else number < int(values[0])


def _integer(text):
    if text is None or not re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII):
        return None
    return int(text) if -(2**63) <= int(text) < 2**63 else None


def _check(requirement):
    operator, values = requirement["operator"], requirement.get("values") or []
    if not _NAME.fullmatch(requirement["key"].rpartition("/")[2]):
        raise Malformed
    if any(value and (len(value) > 63 or not _NAME.fullmatch(value)) for value in values):
        raise Malformed
    if operator in ("In", "NotIn"):
        wrong = not values
    elif operator in ("Exists", "DoesNotExist"):
        wrong = bool(values)
    elif operator in ("Gt", "Lt"):
        wrong = len(values) != 1 or _integer(values[0]) is None
    else:
        wrong = True
    if wrong:
        raise Malformed
