"""What a pod asks for, by resource name, as exact fractions."""

from fractions import Fraction

from scalar.quantities import in_units, parse

DEFAULTS = {"cpu": "100m", "memory": "200Mi"}


def pod_requests(pod, *, use_status=False, by_container=False, skip_pod_level=False, defaults=()):
    """As kube-scheduler adds them up; `by_container` as it did until 1.36."""
    spec, status = pod["spec"], pod.get("status", {})
    defaults = dict(defaults)
    infeasible = use_status and is_infeasible(pod)
    whole, whole_allocated = status.get("resources"), status.get("allocatedResources")
    if not use_status:
        total = _aggregate(pod, defaults, lambda container, _: _asked(container))
    elif by_container:
        total = _aggregate(pod, defaults, lambda *item: _largest(pod, *item))
    else:
        total = {}
        if not infeasible:
            total = _aggregate(pod, defaults, lambda container, _: _asked(container))
        if whole_allocated is not None and (whole or {}).get("requests") is not None:
            sums = [_parsed(whole_allocated), _parsed(whole["requests"])]
        else:
            sums = [
                _aggregate(pod, defaults, lambda *item: _allocated(infeasible, *item)),
                _aggregate(pod, defaults, lambda *item: _actual(infeasible, *item)),
            ]
        for one in sums:
            _raise(total, one)
    if not skip_pod_level and has_pod_level_requests(pod):
        asked = _parsed(spec["resources"]["requests"])
        if use_status and whole is not None:
            effective = _effective(pod, asked, whole.get("requests"), whole_allocated)
            asked = {n: effective.get(n, 0) for n in asked} if by_container else effective
        total |= {name: amount for name, amount in asked.items() if _is_pod_level(name)}
    _add(total, _parsed(spec.get("overhead")))
    return total


def is_infeasible(pod):
    conditions = pod.get("status", {}).get("conditions") or []
    pending = [c for c in conditions if c["type"] == "PodResizePending"]
    return bool(pending) and pending[0].get("reason") == "Infeasible"


def _asked(container):
    return (container.get("resources") or {}).get("requests")


def _allocated(infeasible, container, seen):
    if seen is not None and seen.get("allocatedResources") is not None:
        return seen["allocatedResources"]
    return None if infeasible else _asked(container)


def _actual(infeasible, container, seen):
    if seen is not None and (seen.get("resources") or {}).get("requests") is not None:
        return seen["resources"]["requests"]
    return _allocated(infeasible, container, seen)


def _largest(pod, container, seen):
    """1.36: the largest of a container's three, if it reports any and is no init container that
    ends.
    """
    ends = (
        container in (pod["spec"].get("initContainers") or [])
        and container.get("restartPolicy") != "Always"
    )
    if ends or seen is None or seen.get("resources") is None:
        return _asked(container)
    return _effective(
        pod,
        _parsed(_asked(container)),
        seen["resources"].get("requests"),
        seen.get("allocatedResources"),
    )


def _aggregate(pod, defaults, source):
    spec, status = pod["spec"], pod.get("status", {})
    reported = {}
    for item in (status.get("initContainerStatuses") or []) + (
        status.get("containerStatuses") or []
    ):
        reported[item["name"]] = item

    def of_container(container):
        requests = _parsed(source(container, reported.get(container["name"])))
        for name, raw in defaults.items():
            requests.setdefault(name, parse(raw))
        return requests

    total, sidecars, largest = {}, {}, {}
    for container in spec.get("containers") or []:
        _add(total, of_container(container))
    for container in spec.get("initContainers") or []:
        needed = of_container(container)
        if container.get("restartPolicy") == "Always":
            _add(total, needed)
            _add(sidecars, needed)
            _raise(largest, sidecars)
        else:
            _add(needed, sidecars)
            _raise(largest, needed)
    _raise(total, largest)
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


def accounted(pod, *, by_container=False):
    return vector(pod_requests(pod, use_status=True, by_container=by_container))


def nonzero(pod, *, by_container=False):
    """(milli CPU, memory) with defaults for containers that name none."""
    defaults = DEFAULTS
    if has_pod_level_requests(pod):
        named = pod_requests(pod, use_status=True, by_container=by_container)
        defaults = {name: raw for name, raw in DEFAULTS.items() if name not in named}
    result = vector(
        pod_requests(pod, use_status=True, by_container=by_container, defaults=defaults)
    )
    return result.get("cpu", 0), result.get("memory", 0)


def _effective(pod, spec, actual, allocated):
    result = {} if is_infeasible(pod) else dict(spec)
    _raise(result, _parsed(actual))
    _raise(result, _parsed(allocated))
    return result


def _parsed(requests):
    """Amounts as fractions, whether they are texts or fractions already."""
    given = (requests or {}).items()
    return {name: raw if isinstance(raw, Fraction) else parse(raw) for name, raw in given}


def _add(total, more):
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(total, floor):
    for name, amount in floor.items():
        if name not in total or amount > total[name]:
            total[name] = amount
