"""Validation of pods: new pods, allowed updates, and their claims."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kubesched.api.field_errors import (
    ErrorType,
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kubesched.api.names import dns_1123_label_problems, dns_1123_subdomain_problems
from kubesched.playground.apimachinery.object_meta import (
    label_problems,
    subdomain_problems,
    validate_labels,
)
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.apimachinery.validation import Problems, numbered, one_of, refused
from kubesched.playground.resources.admission.quota_usage import Side, Totals, parsed, pod_total
from kubesched.playground.resources.validation import scheduling
from kubesched.playground.resources.validation.containers import (
    container_resources,
    containers,
    volumes,
)

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
_POD_LEVEL = ("cpu", "hugepages-", "memory")
_MAX_INT32 = 2**31 - 1
_SCHEDULING: dict[str, Callable[[Any, str], Problems]] = {
    "nodeSelector": validate_labels,
    "tolerations": scheduling.tolerations,
    "affinity": scheduling.affinity,
    "topologySpreadConstraints": scheduling.topology_spread,
    "schedulingGates": scheduling.scheduling_gates,
}

_ONLY_THESE = (
    "pod updates may not change fields other than"
    " `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_SEGMENT = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL = re.compile(rf"^({_SEGMENT}[\./])*{_SEGMENT}$")
_SOURCES = ("resourceClaimName", "resourceClaimTemplateName")


def validate_pod(pod: JsonObject) -> Problems:
    spec = pod.get("spec") or {}
    yield from pod_spec(spec, "spec")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        detail = "cannot be set until all schedulingGates have been cleared"
        yield forbidden("spec.nodeName", detail)


def pod_spec(spec: JsonObject, path: str, claim_templates: Iterable[str] = ()) -> Problems:
    """Problems of a pod or template spec; `claim_templates` name volumes of a StatefulSet."""
    items = spec.get("volumes") or ()
    yield from volumes(items, f"{path}.volumes")
    volume_names = {*claim_templates, *(volume.get("name", "") for volume in items)}
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    names: set[str] = set()
    for field in ("containers", "initContainers"):
        yield from containers(spec.get(field) or (), f"{path}.{field}", volume_names, names)
    yield from _host_ports(spec, path)
    yield from one_of(spec["restartPolicy"], _RESTART_POLICIES, f"{path}.restartPolicy")
    yield from one_of(spec["dnsPolicy"], _DNS_POLICIES, f"{path}.dnsPolicy")
    if spec.get("resources"):
        yield from container_resources(spec["resources"], f"{path}.resources")
        yield from _pod_level_resources(spec, f"{path}.resources")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _MAX_INT32:
        detail = f"must be between 1 and {_MAX_INT32}, inclusive"
        yield invalid(f"{path}.activeDeadlineSeconds", deadline, detail)
    yield from _names(spec, path)
    for field, rule in _SCHEDULING.items():
        if spec.get(field):
            yield from rule(spec[field], f"{path}.{field}")
    sysctls = (spec.get("securityContext") or {}).get("sysctls")
    for here, sysctl in numbered(sysctls, f"{path}.securityContext.sysctls"):
        name = sysctl.get("name", "")
        if len(name) > 253 or not _SYSCTL.fullmatch(name):
            detail = f"must have at most 253 characters and match regex {_SYSCTL.pattern}"
            yield invalid(f"{here}.name", name, detail)
    group = spec.get("schedulingGroup")
    if group is not None:
        yield from _scheduling_group(group.get("podGroupName"), f"{path}.schedulingGroup")
    yield from resource_claims(spec, path)


def _scheduling_group(name: str | None, path: str) -> Problems:
    path = f"{path}.podGroupName"
    if name is None:
        return [invalid(path, None, "must specify one of: `podGroupName`")]
    return refused(path, name, subdomain_problems(name))


def _pod_level_resources(spec: JsonObject, path: str) -> Problems:
    """A pod's own requests and limits cover those of its containers."""
    own: dict[Side, Totals] = {
        "requests": parsed(spec["resources"].get("requests")),
        "limits": parsed(spec["resources"].get("limits")),
    }
    containers_only = {field: spec.get(field) for field in ("containers", "initContainers")}
    for side, amounts in own.items():
        for name in amounts:
            if name not in ("cpu", "memory") and not name.startswith("hugepages-"):
                yield not_supported(f"{path}.{side}[{name}]", name, _POD_LEVEL)
        for name, total in pod_total(containers_only, side).items():
            amount = amounts.get(name)
            is_bound = side == "requests" or name.startswith("hugepages-")
            if is_bound and amount is not None and total > amount:
                detail = f"must be greater than or equal to aggregate container {side} of {total}"
                yield invalid(f"{path}.{side}[{name}]", str(amount), detail)
    for index, container in enumerate(spec.get("containers") or ()):
        for name, limit in parsed((container.get("resources") or {}).get("limits")).items():
            if name in own["limits"] and limit > own["limits"][name]:
                detail = f"must be less than or equal to pod limits of {own['limits'][name]}"
                yield invalid(f"{path}.containers[{index}][{name}].limits", str(limit), detail)


def _host_ports(spec: JsonObject, path: str) -> Problems:
    taken: set[tuple[str, str, int]] = set()
    uses_host_network = spec.get("hostNetwork", False)
    for index, container in enumerate(spec.get("containers") or ()):
        for position, port in enumerate(container.get("ports") or ()):
            host_port = port.get("hostPort")
            if not host_port:
                continue
            here = f"{path}.containers[{index}].ports[{position}]"
            claim = (port.get("protocol", "TCP"), port.get("hostIP", ""), host_port)
            if claim in taken:
                text = "/".join(str(part) for part in claim)
                yield invalid(f"{here}.hostPort", text, "is claimed twice by this pod")
            taken.add(claim)
            if uses_host_network and host_port != port.get("containerPort"):
                yield invalid(
                    f"{here}.containerPort",
                    port.get("containerPort"),
                    "must match `hostPort` when `hostNetwork` is true",
                )


def _names(spec: JsonObject, path: str) -> Problems:
    for field, rule in (
        ("nodeName", subdomain_problems),
        ("serviceAccountName", subdomain_problems),
        ("priorityClassName", subdomain_problems),
        ("hostname", label_problems),
        ("subdomain", label_problems),
    ):
        value = spec.get(field)
        if value:
            yield from refused(f"{path}.{field}", value, rule(value))
    policy = spec.get("preemptionPolicy")
    if policy is not None:
        yield from one_of(policy, _PREEMPTION_POLICIES, f"{path}.preemptionPolicy")


def validate_pod_update(new: JsonObject, old: JsonObject) -> Problems:
    """Only images, deadlines, added tolerations and removed gates of a pod's spec may change."""
    before, after = old["spec"], new["spec"]
    if before == after:
        return []
    problems = [
        *_deadline_update(before, after),
        *_toleration_update(before, after),
        *_gate_update(before, after),
    ]
    is_gated = bool(before.get("schedulingGates"))
    if is_gated:
        problems += _gated_update(before, after)
    if not problems and _fixed_part(before, is_gated=is_gated) != _fixed_part(
        after, is_gated=is_gated
    ):
        problems.append(forbidden("spec", _ONLY_THESE))
    return problems


def _deadline_update(before: JsonObject, after: JsonObject) -> Problems:
    path = "spec.activeDeadlineSeconds"
    old, new = before.get("activeDeadlineSeconds"), after.get("activeDeadlineSeconds")
    if old is None or old == new:
        return []
    if new is None:
        return [invalid(path, new, "must not update from a positive integer to nil value")]
    if new > old:
        return [invalid(path, new, f"must be less than or equal to previous value {old}")]
    return []


def _toleration_update(before: JsonObject, after: JsonObject) -> Problems:
    """Tolerations may be added, and the seconds of existing ones changed."""

    def identity(toleration: JsonObject) -> JsonObject:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}

    kept = [identity(candidate) for candidate in after.get("tolerations") or ()]
    if all(identity(candidate) in kept for candidate in before.get("tolerations") or ()):
        return []
    detail = "existing toleration can not be modified except its tolerationSeconds"
    return [forbidden("spec.tolerations", detail)]


def _gate_update(before: JsonObject, after: JsonObject) -> Problems:
    known = {scheduling_gate.get("name") for scheduling_gate in before.get("schedulingGates") or ()}
    return [
        forbidden(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'",
        )
        for index, gate in enumerate(after.get("schedulingGates") or ())
        if gate.get("name") not in known
    ]


def _gated_update(before: JsonObject, after: JsonObject) -> Problems:
    """The node selection of a gated pod may become stricter, not looser."""
    selector = after.get("nodeSelector") or {}
    if any(selector.get(key) != value for key, value in (before.get("nodeSelector") or {}).items()):
        yield invalid(
            "spec.nodeSelector",
            selector,
            "only additions are allowed (no mutations or deletions)",
        )
    old_terms, new_terms = _required_terms(before), _required_terms(after)
    if old_terms is None or old_terms == new_terms:
        return
    path = (
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        ".nodeSelectorTerms"
    )
    if new_terms is None or len(new_terms) != len(old_terms):
        yield invalid(
            path,
            new_terms,
            "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
        )
        return
    for index, (old, new) in enumerate(zip(old_terms, new_terms, strict=True)):
        for field in ("matchExpressions", "matchFields"):
            kept = new.get(field) or []
            if any(item not in kept for item in old.get(field) or ()):
                detail = "only additions are allowed (no mutations or deletions)"
                yield invalid(f"{path}[{index}]", new, detail)
                break


def _required_terms(spec: JsonObject) -> list[JsonObject] | None:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required_part = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required_part is None:
        return None
    terms: list[JsonObject] = required_part.get("nodeSelectorTerms") or []
    return terms


def _fixed_part(spec: JsonObject, *, is_gated: bool) -> JsonObject:
    """The spec without the fields that an update may change."""
    free = ["activeDeadlineSeconds", "tolerations", "schedulingGates"]
    if is_gated:
        free.append("nodeSelector")
    fixed = {key: value for key, value in spec.items() if key not in free}
    if is_gated:
        rest = {
            key: value
            for key, value in (spec.get("affinity") or {}).items()
            if key != "nodeAffinity"
        }
        fixed["affinity"] = rest
    for name in ("containers", "initContainers"):
        if name in fixed:
            fixed[name] = [
                {key: value for key, value in item.items() if key != "image"}
                for item in fixed[name]
            ]
    return fixed


def resource_claims(spec: JsonObject, path: str) -> Problems:
    """Problems of a pod's claims, and of their use in containers."""
    entries = spec.get("resourceClaims") or ()
    names: set[str] = set()
    for index, entry in enumerate(entries):
        yield from _pod_claim(entry, names, f"{path}.resourceClaims[{index}]")
    known = {entry["name"] for entry in entries if entry.get("name")}
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            used = (container.get("resources") or {}).get("claims")
            if used:
                here = f"{path}.{field}[{index}].resources.claims"
                yield from _container_claims(used, known, here)


def _pod_claim(entry: JsonObject, names: set[str], path: str) -> Problems:
    name = entry.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif name in names:
        yield duplicate(f"{path}.name", name)
    else:
        yield from refused(f"{path}.name", name, dns_1123_label_problems(name))
        names.add(name)
    given = [field for field in _SOURCES if entry.get(field) is not None]
    if len(given) == len(_SOURCES):
        detail = (
            "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        )
        yield invalid(path, entry, detail)
    elif not given:
        detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
        yield invalid(path, entry, detail)
    for field in given:
        value = entry[field]
        yield from refused(f"{path}.{field}", value, dns_1123_subdomain_problems(value))


def _container_claims(entries: Sequence[JsonObject], pod_claims: set[str], path: str) -> Problems:
    """A container uses a whole claim or some of its requests, each once."""
    used: set[str] = set()
    for here, entry in numbered(entries, path):
        name, request = entry.get("name", ""), entry.get("request", "")
        if not name:
            yield required(here)
            continue
        if name in used:
            yield duplicate(here, name)
        else:
            key = f"{name}/{request}" if request else name
            if request:
                yield from refused(f"{here}.request", request, dns_1123_label_problems(request))
            if key in used or any(other.partition("/")[0] == key for other in used):
                yield duplicate(here, key)
            used.add(key)
        if name not in pod_claims:
            listed = f": {', '.join(sorted(pod_claims))}" if pod_claims else " which is empty"
            detail = f"must be one of the names in pod.spec.resourceClaims{listed}"
            yield FieldError(ErrorType.NOT_FOUND, here, name, detail)
