"""Rows of the workload kinds."""

from __future__ import annotations

from kubesched.playground.apimachinery.objects import (
    JsonObject,
    parse_timestamp,
    spec_of,
    status_of,
)
from kubesched.playground.handlers.tables.table import (
    AGE,
    NAME,
    NONE,
    Column,
    age,
    human_duration,
    number,
    text,
)
from kubesched.playground.registry.scale import selector_text


def _template_containers(obj: JsonObject) -> list[JsonObject]:
    spec = spec_of(obj)
    template = (
        spec.get("template")
        or ((spec.get("jobTemplate") or {}).get("spec") or {}).get("template")
        or {}
    )
    containers: list[JsonObject] = (template.get("spec") or {}).get("containers") or []
    return containers


def _selector(obj: JsonObject) -> str:
    return selector_text(spec_of(obj).get("selector")) or NONE


_CONTAINERS = Column(
    "Containers",
    lambda obj, _: ",".join(container.get("name", "") for container in _template_containers(obj)),
    priority=1,
)
_IMAGES = Column(
    "Images",
    lambda obj, _: ",".join(container.get("image", "") for container in _template_containers(obj)),
    priority=1,
)
_SELECTOR = Column("Selector", lambda obj, _: _selector(obj), priority=1)
_WIDE = (_CONTAINERS, _IMAGES, _SELECTOR)

_READY_OF_DESIRED = Column(
    "Ready",
    lambda obj, _: f"{status_of(obj).get('readyReplicas', 0)}/{spec_of(obj).get('replicas', 0)}",
)


def _node_selector(obj: JsonObject) -> str:
    labels = ((spec_of(obj).get("template") or {}).get("spec") or {}).get("nodeSelector") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or NONE


def _job_status(obj: JsonObject) -> str:
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


def _job_completions(obj: JsonObject) -> str:
    spec, succeeded = spec_of(obj), status_of(obj).get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism", 0)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(obj: JsonObject, now: float) -> str:
    status = status_of(obj)
    started = status.get("startTime")
    if not started:
        return ""
    ended = status.get("completionTime")
    end = parse_timestamp(ended) if ended else now
    return human_duration(end - parse_timestamp(started))


def _last_schedule(obj: JsonObject, now: float) -> str:
    last = status_of(obj).get("lastScheduleTime")
    return age(last, now) if last else NONE


def _group_status(obj: JsonObject) -> str:
    by_type = {condition["type"]: condition for condition in status_of(obj).get("conditions") or ()}
    if "DisruptionTarget" in by_type:
        reason: str = by_type["DisruptionTarget"].get("reason", "")
        return reason
    scheduled = by_type.get("PodGroupInitiallyScheduled")
    if scheduled is None:
        return "Pending"
    return "Scheduled" if scheduled.get("status") == "True" else "Unschedulable"


_POLICY = Column(
    "Policy",
    lambda obj, _: "Gang" if "gang" in (spec_of(obj).get("schedulingPolicy") or ()) else "Basic",
)
_WORKLOAD = text("Workload", "spec", "workloadRef", "workloadName", default=NONE)


def _controller(obj: JsonObject) -> str:
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            group, _, _ = owner.get("apiVersion", "").rpartition("/")
            kind = owner.get("kind", "").lower()
            return f"{kind}.{group}/{owner.get('name')}" if group else f"{kind}/{owner.get('name')}"
    return NONE


_REPLICA_SET_COLUMNS = (
    NAME,
    number("Desired", "spec", "replicas"),
    number("Current", "status", "replicas"),
    number("Ready", "status", "readyReplicas"),
    AGE,
    *_WIDE,
)

WORKLOADS: dict[str, tuple[Column, ...]] = {
    "compositepodgroups.scheduling.k8s.io": (NAME, _POLICY, _WORKLOAD, AGE),
    "controllerrevisions.apps": (
        NAME,
        Column("Controller", lambda obj, _: _controller(obj)),
        number("Revision", "revision"),
        AGE,
    ),
    "cronjobs.batch": (
        NAME,
        text("Schedule", "spec", "schedule"),
        text("Timezone", "spec", "timeZone", default=NONE),
        Column("Suspend", lambda obj, _: str(bool(spec_of(obj).get("suspend")))),
        Column("Active", lambda obj, _: len(status_of(obj).get("active") or ()), type="integer"),
        Column("Last Schedule", _last_schedule),
        AGE,
        _CONTAINERS,
        _IMAGES,
    ),
    "daemonsets.apps": (
        NAME,
        number("Desired", "status", "desiredNumberScheduled"),
        number("Current", "status", "currentNumberScheduled"),
        number("Ready", "status", "numberReady"),
        number("Up-to-date", "status", "updatedNumberScheduled"),
        number("Available", "status", "numberAvailable"),
        Column("Node Selector", lambda obj, _: _node_selector(obj)),
        AGE,
        *_WIDE,
    ),
    "deployments.apps": (
        NAME,
        _READY_OF_DESIRED,
        number("Up-to-date", "status", "updatedReplicas"),
        number("Available", "status", "availableReplicas"),
        AGE,
        *_WIDE,
    ),
    "jobs.batch": (
        NAME,
        Column("Status", lambda obj, _: _job_status(obj)),
        Column("Completions", lambda obj, _: _job_completions(obj)),
        Column("Duration", _job_duration),
        AGE,
        *_WIDE,
    ),
    "poddisruptionbudgets.policy": (
        NAME,
        text("Min Available", "spec", "minAvailable", default="N/A"),
        text("Max Unavailable", "spec", "maxUnavailable", default="N/A"),
        number("Allowed Disruptions", "status", "disruptionsAllowed"),
        AGE,
    ),
    "podgroups.scheduling.k8s.io": (
        NAME,
        _POLICY,
        _WORKLOAD,
        Column("Status", lambda obj, _: _group_status(obj)),
        AGE,
    ),
    "replicasets.apps": _REPLICA_SET_COLUMNS,
    "replicationcontrollers": _REPLICA_SET_COLUMNS,
    "statefulsets.apps": (NAME, _READY_OF_DESIRED, AGE, _CONTAINERS, _IMAGES),
}
"""Columns by kind, in the order of `kubectl get`."""
