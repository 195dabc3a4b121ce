"""Defaults of pods and of the pod templates inside workloads."""

from __future__ import annotations

from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.resources.defaults.cluster import fill, round_list
from kubesched.playground.resources.defaults.pod_level import default_pod_level_resources

DEFAULT_SCHEDULER = "default-scheduler"
DEFAULT_GRACE_S = 30

_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_MODE_0644 = 0o644
_TOKEN_LIFETIME_S = 3600


def default_pod(pod: JsonObject) -> None:
    spec = pod.setdefault("spec", {})
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    # Upstream: a pod's missing requests come from its limits; a template's stay as written.
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        _requests_from_limits(container)


def default_pod_with_requests(pod: JsonObject) -> None:
    """`default_pod`, and pod-level requests beside pod-level limits."""
    default_pod(pod)
    default_pod_level_resources(pod["spec"], with_limits=False)


def default_pod_status(pod: JsonObject) -> None:
    """Upstream: pod conditions always have a probe time, even if it is null."""
    status = pod.get("status") or {}
    conditions = status.get("conditions") or ()
    if any("lastProbeTime" not in condition for condition in conditions):
        pod["status"] = {
            **status,
            "conditions": [
                condition if "lastProbeTime" in condition else {**condition, "lastProbeTime": None}
                for condition in conditions
            ],
        }


def default_pod_template(template: JsonObject) -> None:
    default_pod_spec(template.setdefault("spec", {}))


def default_pod_spec(spec: JsonObject) -> None:
    spec.setdefault("restartPolicy", "Always")
    if spec.setdefault("terminationGracePeriodSeconds", DEFAULT_GRACE_S) < 0:
        spec["terminationGracePeriodSeconds"] = 1  # Upstream: a negative period means one second
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    if not spec.get("schedulerName"):
        spec["schedulerName"] = DEFAULT_SCHEDULER
    # `serviceAccount` is the old name of `serviceAccountName`; both always have the same value.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    uses_host_network = spec.get("hostNetwork", False)
    for field in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(field) or ():
            _default_container(container, uses_host_network)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    round_list(spec.get("overhead"))
    resources = spec.get("resources")
    if resources:
        round_list(resources.get("limits"))
        round_list(resources.get("requests"))


def _default_container(container: JsonObject, uses_host_network: bool) -> None:
    resources = container.get("resources")
    if resources is None:
        container["resources"] = {}
    else:
        round_list(resources.get("limits"))
        round_list(resources.get("requests"))
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = _pull_policy(container.get("image", ""))
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if uses_host_network and not port.get("hostPort") and "containerPort" in port:
            port["hostPort"] = port["containerPort"]
    for variable in container.get("env") or ():
        source = (variable.get("valueFrom") or {}).get("fieldRef")
        if source is not None:
            source.setdefault("apiVersion", "v1")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if probe is not None:
            _default_probe(probe)
    for handler in (container.get("lifecycle") or {}).values():
        if isinstance(handler, dict):
            _default_http_get(handler)


def _pull_policy(image: str) -> str:
    """Always for the tag `latest`, explicit or implied; other tags and digests pin the image."""
    if "@" in image:
        return "IfNotPresent"
    tag = image.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _default_probe(probe: JsonObject) -> None:
    fill(probe, _PROBE)
    _default_http_get(probe)
    grpc = probe.get("grpc")
    if grpc is not None:
        grpc.setdefault("service", "")


def _default_http_get(handler: JsonObject) -> None:
    action = handler.get("httpGet")
    if action is not None:
        fill(action, {"path": "/", "scheme": "HTTP"})


def _requests_from_limits(container: JsonObject) -> None:
    resources = container.get("resources") or {}
    limits = resources.get("limits")
    if limits:
        requests = resources.setdefault("requests", {})
        for name, amount in limits.items():
            requests.setdefault(name, amount)


def _default_volume(volume: JsonObject) -> None:
    if len(volume) <= 1:
        volume["emptyDir"] = {}
        return
    for source in ("secret", "configMap", "downwardAPI", "projected"):
        body = volume.get(source)
        if body is not None:
            body.setdefault("defaultMode", _MODE_0644)
    host_path = volume.get("hostPath")
    if host_path is not None:
        host_path.setdefault("type", "")
    for source in ((volume.get("projected") or {}).get("sources")) or ():
        token = source.get("serviceAccountToken")
        if token is not None:
            token.setdefault("expirationSeconds", _TOKEN_LIFETIME_S)
        _default_field_refs(source.get("downwardAPI"))
    _default_field_refs(volume.get("downwardAPI"))
    claim = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if claim is not None:
        claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _default_field_refs(source: JsonObject | None) -> None:
    for item in (source or {}).get("items") or ():
        reference = item.get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")
