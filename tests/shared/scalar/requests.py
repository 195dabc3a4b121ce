"""What a pod asks for, by resource name, as exact fractions."""

from scalar.quantities import in_units, parse

DEFAULTS = {"cpu": "100m", "memory": "200Mi"}


def pod_requests(pod, *, use_status=False, skip_pod_level=False, defaults=()):
    spec, status = pod["spec"], pod.get("status", {})
    defaults = dict(defaults)
    reported = {}
    if use_status:
        for item in status.get("initContainerStatuses", []) + status.get("containerStatuses", []):
            reported[item["name"]] = item

    def of_container(container, *, with_status):
        requests = _parsed(container.get("resources", {}).get("requests"))
        seen = reported.get(container["name"]) if with_status else None
        if seen is not None and seen.get("resources") is not None:
            requests = _effective(
                pod, requests, seen["resources"].get("requests"), seen.get("allocatedResources")
            )
        for name, raw in defaults.items():
            requests.setdefault(name, parse(raw))
        return requests

    total, sidecars, largest = {}, {}, {}
    for container in spec.get("containers") or []:
        _add(total, of_container(container, with_status=True))
    for container in spec.get("initContainers") or []:
        restarts = container.get("restartPolicy") == "Always"
        needed = of_container(container, with_status=restarts)
        if restarts:
            _add(total, needed)
            _add(sidecars, needed)
            _raise(largest, sidecars)
        else:
            _add(needed, sidecars)
            _raise(largest, needed)
    _raise(total, largest)
    pod_level = _parsed((spec.get("resources") or {}).get("requests"))
    if not skip_pod_level:
        total |= {name: amount for name, amount in pod_level.items() if _is_pod_level(name)}
    _add(total, _parsed(spec.get("overhead")))
    return total


def has_pod_level_requests(pod):
    requests = (pod["spec"].get("resources") or {}).get("requests") or {}
    return any(map(_is_pod_level, requests))


def _is_pod_level(name):
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def vector(requests):
    """Name -> integer, of every resource that counts."""
    return {name: in_units(name, amount) for name, amount in requests.items() if counts(name)}


def counts(name):
    return name in ("cpu", "memory", "ephemeral-storage") or is_scalar(name)


def is_scalar(name):
    return name.startswith(("hugepages-", "attachable-volumes-")) or "/" in name


def accounted(pod):
    return vector(pod_requests(pod, use_status=True))


def nonzero(pod):
    """(milli CPU, memory) with defaults for containers that name none."""
    defaults = DEFAULTS
    if has_pod_level_requests(pod):
        named = pod_requests(pod, use_status=True)
        defaults = {name: raw for name, raw in DEFAULTS.items() if name not in named}
    result = vector(pod_requests(pod, use_status=True, defaults=defaults))
    return result.get("cpu", 0), result.get("memory", 0)


def _effective(pod, spec, actual, allocated):
    pending = [
        condition
        for condition in pod.get("status", {}).get("conditions", [])
        if condition["type"] == "PodResizePending"
    ]
    infeasible = bool(pending) and pending[0].get("reason") == "Infeasible"
    result = {} if infeasible else dict(spec)
    _raise(result, _parsed(actual))
    _raise(result, _parsed(allocated))
    return result


def _parsed(requests):
    return {name: parse(raw) for name, raw in (requests or {}).items()}


def _add(total, more):
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(total, floor):
    for name, amount in floor.items():
        if name not in total or amount > total[name]:
            total[name] = amount
