"""Rows of the kinds that make pods."""

from __future__ import annotations

from kubesched.embedded.apimachinery.objects import JsonObject, parse_timestamp
from kubesched.embedded.handlers.tables.table import AGE, NAME, Column, age, human_duration
from kubesched.embedded.registry.scale import selector_text


def _spec(obj: JsonObject) -> JsonObject:
    return obj.get("spec") or {}


def _status(obj: JsonObject) -> JsonObject:
    return obj.get("status") or {}


def _number(name: str, section: str, field: str, default: int = 0) -> Column:
    return Column(name, lambda obj, _: (obj.get(section) or {}).get(field, default), type="integer")


def _template_containers(obj: JsonObject) -> list[JsonObject]:
    spec = _spec(obj)
    template = (
        spec.get("template")
        or ((spec.get("jobTemplate") or {}).get("spec") or {}).get("template")
        or {}
    )
    containers: list[JsonObject] = (template.get("spec") or {}).get("containers") or []
    return containers


def _selector(obj: JsonObject) -> str:
    return selector_text(_spec(obj).get("selector")) or "<none>"


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
    lambda obj, _: f"{_status(obj).get('readyReplicas', 0)}/{_spec(obj).get('replicas', 0)}",
)

DEPLOYMENT_COLUMNS = (
    NAME,
    _READY_OF_DESIRED,
    _number("Up-to-date", "status", "updatedReplicas"),
    _number("Available", "status", "availableReplicas"),
    AGE,
    *_WIDE,
)
REPLICA_SET_COLUMNS = (
    NAME,
    _number("Desired", "spec", "replicas"),
    _number("Current", "status", "replicas"),
    _number("Ready", "status", "readyReplicas"),
    AGE,
    *_WIDE,
)
STATEFUL_SET_COLUMNS = (NAME, _READY_OF_DESIRED, AGE, _CONTAINERS, _IMAGES)


def _node_selector(obj: JsonObject) -> str:
    labels = ((_spec(obj).get("template") or {}).get("spec") or {}).get("nodeSelector") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "<none>"


DAEMON_SET_COLUMNS = (
    NAME,
    _number("Desired", "status", "desiredNumberScheduled"),
    _number("Current", "status", "currentNumberScheduled"),
    _number("Ready", "status", "numberReady"),
    _number("Up-to-date", "status", "updatedNumberScheduled"),
    _number("Available", "status", "numberAvailable"),
    Column("Node Selector", lambda obj, _: _node_selector(obj)),
    AGE,
    *_WIDE,
)


def _job_status(obj: JsonObject) -> str:
    true = {
        entry.get("type")
        for entry in _status(obj).get("conditions") or ()
        if entry.get("status") == "True"
    }
    for condition in ("Complete", "Failed"):
        if condition in true:
            return condition
    if obj["metadata"].get("deletionTimestamp") is not None:
        return "Terminating"
    for condition, text in (
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ):
        if condition in true:
            return text
    return "Running"


def _job_completions(obj: JsonObject) -> str:
    spec, succeeded = _spec(obj), _status(obj).get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism", 0)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(obj: JsonObject, now: float) -> str:
    status = _status(obj)
    started = status.get("startTime")
    if not started:
        return ""
    ended = status.get("completionTime")
    end = parse_timestamp(ended) if ended else now
    return human_duration(end - parse_timestamp(started))


JOB_COLUMNS = (
    NAME,
    Column("Status", lambda obj, _: _job_status(obj)),
    Column("Completions", lambda obj, _: _job_completions(obj)),
    Column("Duration", _job_duration),
    AGE,
    *_WIDE,
)


def _last_schedule(obj: JsonObject, now: float) -> str:
    last = _status(obj).get("lastScheduleTime")
    return age(last, now) if last else "<none>"


CRON_JOB_COLUMNS = (
    NAME,
    Column("Schedule", lambda obj, _: _spec(obj).get("schedule", "")),
    Column("Timezone", lambda obj, _: _spec(obj).get("timeZone") or "<none>"),
    Column("Suspend", lambda obj, _: str(bool(_spec(obj).get("suspend")))),
    Column("Active", lambda obj, _: len(_status(obj).get("active") or ()), type="integer"),
    Column("Last Schedule", _last_schedule),
    AGE,
    _CONTAINERS,
    _IMAGES,
)


def _int_or_percent(field: str) -> Column:
    name = "Min Available" if field == "minAvailable" else "Max Unavailable"
    return Column(name, lambda obj, _: str(_spec(obj).get(field, "N/A")))


BUDGET_COLUMNS = (
    NAME,
    _int_or_percent("minAvailable"),
    _int_or_percent("maxUnavailable"),
    _number("Allowed Disruptions", "status", "disruptionsAllowed"),
    AGE,
)


def _controller(obj: JsonObject) -> str:
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            group, _, _ = owner.get("apiVersion", "").rpartition("/")
            kind = owner.get("kind", "").lower()
            return f"{kind}.{group}/{owner.get('name')}" if group else f"{kind}/{owner.get('name')}"
    return "<none>"


REVISION_COLUMNS = (
    NAME,
    Column("Controller", lambda obj, _: _controller(obj)),
    Column("Revision", lambda obj, _: obj.get("revision", 0), type="integer"),
    AGE,
)
