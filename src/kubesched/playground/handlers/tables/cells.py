"""Cells of `kubectl get` that are more than the value at a path; `columns.txt` names them.

Those of pods are in `pods`.
"""

from __future__ import annotations

from kubesched.playground.apimachinery.objects import (
    JsonObject,
    labels_of,
    parse_timestamp,
    spec_of,
    status_of,
)
from kubesched.playground.handlers.tables.durations import NONE, age, human_duration
from kubesched.playground.registry.scale import selector_text

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ACCESS_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def node_status(node: JsonObject) -> str:
    words = ["Unknown"]
    for condition in status_of(node).get("conditions") or ():
        if condition.get("type") == "Ready":
            words = ["Ready" if condition.get("status") == "True" else "NotReady"]
    if spec_of(node).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def node_roles(node: JsonObject) -> str:
    roles = set()
    for key, value in labels_of(node).items():
        if key.startswith(_ROLE_PREFIX) and key != _ROLE_PREFIX:
            roles.add(key.removeprefix(_ROLE_PREFIX))
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    return ",".join(sorted(roles)) or NONE


def volume_phase(obj: JsonObject) -> str:
    if obj["metadata"].get("deletionTimestamp") is not None:
        return "Terminating"
    phase: str = status_of(obj).get("phase", "")
    return phase


def _modes(modes: list[str] | None) -> str:
    order = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
    return ",".join(_ACCESS_MODES[mode] for mode in order if mode in (modes or ()))


def claim_capacity(obj: JsonObject) -> str:
    # Upstream: size and modes are those of the bound volume; an unbound claim shows none.
    if not spec_of(obj).get("volumeName"):
        return ""
    return str((status_of(obj).get("capacity") or {}).get("storage", ""))


def claim_modes(obj: JsonObject) -> str:
    if not spec_of(obj).get("volumeName"):
        return ""
    return _modes(status_of(obj).get("accessModes"))


def volume_modes(obj: JsonObject) -> str:
    return _modes(spec_of(obj).get("accessModes"))


def claim_of_volume(obj: JsonObject) -> str:
    reference = spec_of(obj).get("claimRef")
    return f"{reference.get('namespace', '')}/{reference.get('name', '')}" if reference else ""


def class_name(obj: JsonObject) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    is_default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    name: str = obj["metadata"]["name"]
    return f"{name} (default)" if is_default else name


def external_address(obj: JsonObject) -> str:
    spec = spec_of(obj)
    kind = spec.get("type")
    if kind == "ExternalName":
        return str(spec.get("externalName", ""))
    ingress = (status_of(obj).get("loadBalancer") or {}).get("ingress") or ()
    addresses = (
        [point.get("ip") or point.get("hostname", "") for point in ingress]
        if kind == "LoadBalancer"
        else []
    )
    addresses += spec.get("externalIPs") or []
    return ",".join(addresses) or ("<pending>" if kind == "LoadBalancer" else NONE)


def service_ports(obj: JsonObject) -> str:
    texts = []
    for port in spec_of(obj).get("ports") or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        texts.append(f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}")
    return ",".join(texts) or NONE


def first_seen(event: JsonObject, now: float) -> str:
    return age(_first_time(event), now)


def last_seen(event: JsonObject, now: float) -> str:
    series = event.get("series") or {}
    last = event.get("lastTimestamp") or series.get("lastObservedTime")
    return age(last or _first_time(event), now)


def _first_time(event: JsonObject) -> str | None:
    return event.get("firstTimestamp") or event.get("eventTime")


def event_message(event: JsonObject) -> str:
    return str(event.get("message") or "").strip()


def event_count(event: JsonObject) -> int:
    count: int = (event.get("series") or {}).get("count") or event.get("count") or 1
    return count


def event_object(event: JsonObject) -> str:
    about = event.get("involvedObject") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def event_source(event: JsonObject) -> str:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent", "")
    host = source.get("host") or ""
    return f"{component}, {host}" if host else component


def claim_state(obj: JsonObject) -> str:
    status = obj.get("status") or {}
    words = []
    if obj["metadata"].get("deletionTimestamp") is not None:
        words.append("deleted")
    if status.get("allocation") is not None:
        words.append("allocated")
        if status.get("reservedFor"):
            words.append("reserved")
    return ",".join(words) or "pending"


def role(obj: JsonObject) -> str:
    reference = obj.get("roleRef") or {}
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


def config_entries(obj: JsonObject) -> int:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


def selector(obj: JsonObject) -> str:
    return selector_text(spec_of(obj).get("selector")) or NONE


def ready_of_desired(obj: JsonObject) -> str:
    return f"{status_of(obj).get('readyReplicas', 0)}/{spec_of(obj).get('replicas', 0)}"


def node_selector(obj: JsonObject) -> str:
    labels = ((spec_of(obj).get("template") or {}).get("spec") or {}).get("nodeSelector") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or NONE


def job_status(obj: JsonObject) -> str:
    true = {
        entry.get("type")
        for entry in status_of(obj).get("conditions") or ()
        if entry.get("status") == "True"
    }
    for condition in ("Complete", "Failed"):
        if condition in true:
            return condition
    if obj["metadata"].get("deletionTimestamp") is not None:
        return "Terminating"
    for condition in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if condition in true:
            return condition
    return "Running"


def job_completions(obj: JsonObject) -> str:
    spec, succeeded = spec_of(obj), status_of(obj).get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism", 0)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def job_duration(obj: JsonObject, now: float) -> str:
    status = status_of(obj)
    started = status.get("startTime")
    if not started:
        return ""
    ended = status.get("completionTime")
    end = parse_timestamp(ended) if ended else now
    return human_duration(end - parse_timestamp(started))


def last_schedule(obj: JsonObject, now: float) -> str:
    last = status_of(obj).get("lastScheduleTime")
    return age(last, now) if last else NONE


def group_status(obj: JsonObject) -> str:
    by_type = {condition["type"]: condition for condition in status_of(obj).get("conditions") or ()}
    if "DisruptionTarget" in by_type:
        reason: str = by_type["DisruptionTarget"].get("reason", "")
        return reason
    scheduled = by_type.get("PodGroupInitiallyScheduled")
    if scheduled is None:
        return "Pending"
    return "Scheduled" if scheduled.get("status") == "True" else "Unschedulable"


def scheduling_policy(obj: JsonObject) -> str:
    return "Gang" if "gang" in (spec_of(obj).get("schedulingPolicy") or ()) else "Basic"


def suspended(obj: JsonObject) -> str:
    return str(bool(spec_of(obj).get("suspend")))


def controller(obj: JsonObject) -> str:
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            group, _, _ = owner.get("apiVersion", "").rpartition("/")
            kind = owner.get("kind", "").lower()
            return f"{kind}.{group}/{owner.get('name')}" if group else f"{kind}/{owner.get('name')}"
    return NONE
