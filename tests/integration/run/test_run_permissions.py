"""The permissions in deploy/manifests are what the scheduler needs: enough for everything it does,
and each one used.

Against the embedded API server the rules of the manifests are enforced by a small authorizer here,
which also notes what was asked for. Against a real one, RBAC itself does it, with a service
account's token.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs

import aiohttp
import pytest
import yaml

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.api.meta import DeleteOptions
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.base.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound
from kubesched.client.patch import strategic_merge_patch
from kubesched.playground.handlers.routes import parse_target
from kubesched.playground.server.api_server import failure
from tests.integration.run.conftest import POD_GROUP_GATES

MANIFESTS = Path(__file__).parents[3] / "deploy" / "manifests"


def documents(name):
    return [item for item in yaml.safe_load_all((MANIFESTS / name).read_text()) if item]


def scheduler_config():
    (config,) = documents("configmap.yaml")
    return yaml.safe_load(config["data"]["scheduler.yaml"])


BOOTSTRAP = {
    ("ClusterRole", "system:auth-delegator"): [
        {
            "apiGroups": ["authentication.k8s.io"],
            "resources": ["tokenreviews"],
            "verbs": ["create"],
        },
        {
            "apiGroups": ["authorization.k8s.io"],
            "resources": ["subjectaccessreviews"],
            "verbs": ["create"],
        },
    ],
    ("Role", "extension-apiserver-authentication-reader"): [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["extension-apiserver-authentication"],
            "verbs": ["get", "list", "watch"],
        }
    ],
}
"""Roles that every API server brings along."""


CHECKED_BY_REAL_SERVERS = {"resourceclaims/binding"}
"""Not a path: what a write to `resourceclaims/status` must be allowed besides, to change allocation
or reservations.
"""


POD_GROUPS = {"podgroups", "podgroups/status", "compositepodgroups"}
"""Only asked for with feature gates, which extenders cannot be combined with; they have a test of
their own.
"""


@dataclass(frozen=True)
class Grant:
    """One verb on one resource: what a rule is made of."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    """Only there, unless empty."""
    name: str = ""
    """Only this object, unless empty."""

    def covers(self, request):
        return (
            (self.verb, self.group, self.resource)
            == (request.verb, request.group, request.resource)
            and self.namespace in ("", request.namespace)
            and self.name in ("", request.name)
        )


def grants_of(rule, namespace=""):
    return {
        Grant(verb, group, resource, namespace, name)
        for verb in rule["verbs"]
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        for name in rule.get("resourceNames") or [""]
    }


@dataclass
class Rbac:
    """Enough of RBAC to enforce the manifests on requests of the scheduler."""

    grants: set = field(default_factory=set)
    """What the manifests' own roles allow."""
    borrowed: set = field(default_factory=set)
    """What roles allow that every API server brings along."""
    asked: set = field(default_factory=set)
    refused: list = field(default_factory=list)

    @classmethod
    def of_manifests(cls):
        objects = documents("rbac.yaml")
        roles = {
            (item["kind"], item["metadata"]["name"]): item["rules"]
            for item in objects
            if item["kind"] in ("Role", "ClusterRole")
        }
        made = cls()
        for item in objects:
            if not item["kind"].endswith("Binding"):
                continue
            role = item["roleRef"]["kind"], item["roleRef"]["name"]
            namespace = item["metadata"].get("namespace", "")
            for rule in roles.get(role) or BOOTSTRAP[role]:
                (made.grants if role in roles else made.borrowed).update(grants_of(rule, namespace))
        return made

    def allows(self, request, catalog):
        if not request.path.startswith("/api"):
            return False
        target = parse_target(request.path, catalog)
        info = target.resource
        resource = f"{info.plural}/{target.subresource}" if target.subresource else info.plural
        wanted = Grant(
            _verb(request, target), info.group, resource, target.namespace or "", target.name or ""
        )
        self.asked.add(wanted)
        if allowed(wanted, self.grants | self.borrowed):
            return True
        self.refused.append(wanted)
        return False


def allowed(request, grants):
    return any(grant.covers(request) for grant in grants)


def _verb(request, target):
    if request.method == "GET":
        if "watch" in parse_qs(request.query):
            return "watch"
        return "get" if target.name else "list"
    return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[request.method]


@pytest.fixture
def rbac(cluster):
    """Enforce the manifests on everything that the scheduler sends, and stream no lists, as before
    Kubernetes 1.32.
    """
    enforced = Rbac.of_manifests()
    catalog = cluster.embedded.server.registry.catalog

    trouble = {
        # Read anew after a conflict; taken back, and the claim for extended resources deleted,
        # after a failed binding.
        ("PUT", "/resourceclaims/one-gpu/status"): Conflict("modified"),
        ("POST", "/pods/devices/binding"): Invalid("not now"),
    }

    def guarded(request, answer):
        ours = request.headers.get("user-agent", "").startswith("kubesched/")
        if ours and not enforced.allows(request, catalog):
            return failure(Forbidden(f"{request.method} {request.path} is not in the manifests"))
        for (method, suffix), error in list(trouble.items()) if ours else ():
            if request.method == method and request.path.endswith(suffix):
                del trouble[method, suffix]
                return failure(error)
        if ours and "sendInitialEvents" in request.query:
            return failure(Invalid("sendInitialEvents is forbidden for watch"))
        return answer()

    cluster.intercept(guarded)
    return enforced


async def full_run(cluster, run, extender, kubeconfig, token):
    """Lead, bind, ask an extender, fail twice, preempt, choose a volume, have one made, serve, step
    down.
    """
    extender.answers["filter"] = lambda body: {
        "Nodes": body["Nodes"],
        "FailedNodes": {},
        "Error": "",
    }
    for name, value in (("high", 1000), ("higher", 2000)):
        await cluster.create(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            apiVersion="scheduling.k8s.io/v1",
            kind="PriorityClass",
            metadata={"name": name},
            value=value,
        )
    await cluster.add_node("n1", cpu="2")
    scheduler = await run(
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        config={
            **{
                key: value
                for key, value in scheduler_config().items()
                if key not in ("apiVersion", "kind")
            },
            "extenders": [
                {"urlPrefix": extender.url, "filterVerb": "filter", "httpTimeout": "30s"}
            ],
        },
        kubeconfig=kubeconfig,
    )
    await scheduler.says('"Successfully acquired lease" lock="kube-system/kubesched"')

    ours = {"schedulerName": "kubesched"}
    await cluster.add_pod("victim", cpu="1500m", **ours)
    assert await cluster.bound("victim") == ["n1"]
    await cluster.add_pod("big", cpu="1900m", **ours)
    await cluster.condition("big")
    await cluster.events("big", "FailedScheduling")

    await preempt(cluster, "victim", "important", priorityClassName="high", **ours)
    await preempt(cluster, "important", "urgent", priorityClassName="higher", **ours)

    async def is_series():
        return [e for e in await cluster.events("big", "FailedScheduling") if e.get("series")]

    await cluster.eventually(is_series)  # each one that left gave it another try

    await choose_volume(cluster, ours)
    await have_a_volume_made(cluster, ours)
    await allocate_devices(cluster, ours)
    await scrape(scheduler, token)
    return scheduler


async def preempt(cluster, victim, preemptor, **spec):
    """A pod takes another's place; the test finishes what a kubelet would."""
    await cluster.add_pod(preemptor, cpu="1500m", **spec)

    async def nominated():
        return (await cluster.pod(preemptor)).status.nominated_node_name

    assert await cluster.eventually(nominated) == "n1"

    async def is_leaving():
        try:
            return (await cluster.pod(victim)).metadata.deletion_timestamp
        except NotFound:
            return True

    await cluster.eventually(is_leaving)
    with contextlib.suppress(NotFound):
        await cluster.admin.delete(Pod, victim, "default", DeleteOptions(grace_period_seconds=0))
    assert await cluster.bound(preemptor) == ["n1"]


async def choose_volume(cluster, ours):
    """A claim that waits for its first consumer: the scheduler gives it a volume."""
    await cluster.create(
        "/apis/storage.k8s.io/v1/storageclasses",
        apiVersion="storage.k8s.io/v1",
        kind="StorageClass",
        metadata={"name": "local"},
        provisioner="kubernetes.io/no-provisioner",
        volumeBindingMode="WaitForFirstConsumer",
    )
    await cluster.create(
        "/api/v1/persistentvolumes",
        apiVersion="v1",
        kind="PersistentVolume",
        metadata={"name": "disk"},
        spec={
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "hostPath": {"path": "/tmp/disk"},
        },
    )
    available = strategic_merge_patch({"status": {"phase": "Available"}})
    await cluster.admin.patch(PersistentVolume, "disk", "", available, subresource="status")
    await cluster.create(
        "/api/v1/namespaces/default/persistentvolumeclaims",
        apiVersion="v1",
        kind="PersistentVolumeClaim",
        metadata={"name": "claim"},
        spec={
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    )
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}]
    await cluster.add_pod("stateful", volumes=volumes, **ours)

    async def claimed():
        volume = await cluster.admin.get(PersistentVolume, "disk")
        return volume.spec.claim_ref

    reference = await cluster.eventually(claimed)
    assert (reference.namespace, reference.name) == ("default", "claim")


async def have_a_volume_made(cluster, ours):
    """A claim of a class with a provisioner: the scheduler writes the node that it chose into the
    claim.
    """
    await cluster.create(
        "/apis/storage.k8s.io/v1/storageclasses",
        apiVersion="storage.k8s.io/v1",
        kind="StorageClass",
        metadata={"name": "made-to-order"},
        provisioner="example.com/disks",
        volumeBindingMode="WaitForFirstConsumer",
    )
    await cluster.create(
        "/api/v1/namespaces/default/persistentvolumeclaims",
        apiVersion="v1",
        kind="PersistentVolumeClaim",
        metadata={"name": "order"},
        spec={
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "made-to-order",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    )
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "order"}}]
    await cluster.add_pod("ordering", volumes=volumes, **ours)

    async def selected():
        claim = await cluster.admin.get(PersistentVolumeClaim, "order", "default")
        return (claim.metadata.annotations or {}).get("volume.kubernetes.io/selected-node")

    assert await cluster.eventually(selected) == "n1"


GPU = "example.com/gpu"


async def allocate_devices(cluster, ours):
    """One pod asks for a device by claim and for another as an extended resource.

    If the embedded server makes trouble (see `rbac`), both are given back once and written again.
    """
    await cluster.create(
        "/apis/resource.k8s.io/v1/deviceclasses",
        apiVersion="resource.k8s.io/v1",
        kind="DeviceClass",
        metadata={"name": "gpu"},
        spec={"extendedResourceName": GPU},
    )
    await cluster.create(
        "/apis/resource.k8s.io/v1/resourceslices",
        apiVersion="resource.k8s.io/v1",
        kind="ResourceSlice",
        metadata={"name": "n1-gpus"},
        spec={
            "driver": "gpu.example.com",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "n1",
            "devices": [{"name": "a"}, {"name": "b"}],
        },
    )
    await cluster.create(
        "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
        apiVersion="resource.k8s.io/v1",
        kind="ResourceClaim",
        metadata={"name": "one-gpu"},
        spec={
            "devices": {
                "requests": [
                    {
                        "name": "gpu",
                        "exactly": {
                            "deviceClassName": "gpu",
                            "allocationMode": "ExactCount",
                            "count": 1,
                        },
                    }
                ]
            }
        },
    )
    await cluster.add_pod(
        "devices",
        containers=[
            {
                "name": "main",
                "image": "x",
                "resources": {"limits": {GPU: "1"}, "requests": {GPU: "1"}},
            }
        ],
        resourceClaims=[{"name": "gpu", "resourceClaimName": "one-gpu"}],
        **ours,
    )
    assert await cluster.bound("devices") == ["n1"]
    claims = (await cluster.admin.list(ResourceClaim, "default")).items
    taken = {
        result.device for claim in claims for result in claim.status.allocation.devices.results
    }
    assert taken == {"a", "b"}


async def scrape(scheduler, token):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    url = f"https://127.0.0.1:{scheduler.port}/metrics"
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession() as session:
        async with session.get(url, ssl=context, headers=headers) as answer:
            assert answer.status == 200
            assert "scheduler_schedule_attempts_total" in await answer.text()
        async with session.get(url, ssl=context) as answer:
            await answer.read()  # whether anonymous users may read it is for the server to decide


@pytest.mark.parametrize("cluster", ["embedded"], indirect=True)
async def test_a_full_run_is_allowed_and_needs_every_permission(cluster, run, extender, rbac):
    scheduler = await full_run(cluster, run, extender, cluster.kubeconfig, cluster.embedded.token)
    assert await scheduler.terminated() == 0
    assert rbac.refused == []
    everything = rbac.grants | rbac.borrowed
    assert len(rbac.grants) > 40
    needless = {
        grant
        for grant in rbac.grants
        if all(allowed(request, everything - {grant}) for request in rbac.asked)
        and grant.resource not in CHECKED_BY_REAL_SERVERS | POD_GROUPS
    }
    assert needless == set(), "taken away, nothing would be refused"
    borrowed = {
        (request.verb, request.resource)
        for request in rbac.asked
        if not allowed(request, rbac.grants)
    }
    assert borrowed == {
        ("create", "tokenreviews"),
        ("create", "subjectaccessreviews"),
        ("get", "configmaps"),
    }


@pytest.mark.parametrize("cluster", ["embedded with pod groups"], indirect=True)
async def test_pod_groups_are_allowed_and_need_every_permission(cluster, run, rbac):
    await cluster.add_node("n1")
    groups = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
    await cluster.create(
        groups,
        apiVersion="scheduling.k8s.io/v1beta1",
        kind="PodGroup",
        metadata={"name": "gang"},
        spec={"schedulingPolicy": {"gang": {"minCount": 2}}},
    )
    scheduler = await run(
        f"--feature-gates={POD_GROUP_GATES}", config={"leaderElection": {"leaderElect": False}}
    )
    for name in ("a", "b"):
        await cluster.add_pod(name, schedulingGroup={"podGroupName": "gang"})
    assert await cluster.bound("a", "b") == ["n1", "n1"]

    async def condition():
        group = json.loads(await cluster.admin.get_raw(f"{groups}/gang"))
        return group["status"].get("conditions")

    (scheduled,) = await cluster.eventually(condition)
    assert (scheduled["type"], scheduled["status"]) == ("PodGroupInitiallyScheduled", "True")
    assert await scheduler.terminated() == 1  # as upstream without leader election
    assert rbac.refused == []
    wanted = {(grant.resource, grant.verb) for grant in rbac.grants if grant.resource in POD_GROUPS}
    assert wanted == {
        (request.resource, request.verb) for request in rbac.asked if request.resource in POD_GROUPS
    }


@pytest.mark.parametrize("cluster", ["embedded"], indirect=True)
async def test_the_authorizer_of_this_test_refuses_what_is_missing(cluster, run, rbac):
    rbac.grants.remove(Grant("create", "", "pods/binding"))
    await cluster.add_node("n1")
    scheduler = await run(config={"leaderElection": {"leaderElect": False}})
    await cluster.add_pod("a")
    await scheduler.says('"Error scheduling pod; retrying"')
    assert Grant("create", "", "pods/binding", "default", "a") in rbac.refused


REAL = pytest.mark.parametrize(
    "cluster", [pytest.param("real", marks=pytest.mark.real)], indirect=True
)

PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
}


async def apply(cluster, obj, *, dry_run=False):
    path = PATHS[obj["kind"]].format(namespace=obj["metadata"].get("namespace", ""))
    query = "?fieldValidation=Strict" + ("&dryRun=All" if dry_run else "")
    return json.loads(await cluster.admin.post_raw(path + query, json.dumps(obj).encode()))


async def service_account_token(cluster, name="kubesched"):
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600},
    }
    path = f"/api/v1/namespaces/kube-system/serviceaccounts/{name}/token"
    answer = json.loads(await cluster.admin.post_raw(path, json.dumps(request).encode()))
    return answer["status"]["token"]


def write_kubeconfig(cluster, path, **user):
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = user
    path.write_text(yaml.safe_dump(config))
    return path


@REAL
async def test_a_real_api_server_accepts_every_manifest_strictly(cluster):
    for path in sorted(MANIFESTS.glob("*.yaml")):
        if path.name in ("kustomization.yaml", "servicemonitor.yaml", "prometheusrule.yaml"):
            continue
        for obj in documents(path.name):
            created = await apply(cluster, obj, dry_run=True)
            assert created["metadata"]["name"] == obj["metadata"]["name"]


def rendered_chart(**values):
    """The chart as tests/unit/deploy renders it."""
    path = Path(__file__).parents[2] / "unit" / "deploy" / "conftest.py"
    spec = importlib.util.spec_from_file_location("chart_rendering", path)
    rendering = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rendering)
    return rendering.rendered_here("release", "kube-system", values, None)


@REAL
@pytest.mark.parametrize(
    "values",
    [
        pytest.param({}, id="as it comes"),
        pytest.param(
            {
                "imagePullSecrets": [{"name": "pull"}],
                "nodeSelector": {"role": "control"},
                "extraArgs": ["-v=2"],
                "podDisruptionBudget": {"maxUnavailable": "50%"},
            },
            id="with more set",
        ),
    ],
)
async def test_a_real_api_server_accepts_the_chart_strictly(cluster, values):
    for objects in rendered_chart(**values).values():
        for obj in objects:
            created = await apply(cluster, obj, dry_run=True)
            assert created["metadata"]["name"] == obj["metadata"]["name"]


@REAL
async def test_a_real_api_server_refuses_a_wrong_field(cluster):
    (deployment,) = documents("deployment.yaml")
    deployment["spec"]["template"]["spec"]["containers"][0]["comand"] = ["x"]
    with pytest.raises(BadRequest, match=r"containers\[0\]\.comand"):
        await apply(cluster, deployment, dry_run=True)


@REAL
async def test_real_rbac_allows_a_full_run(cluster, run, extender, tmp_path):
    for obj in documents("rbac.yaml"):
        await apply(cluster, obj)
    reader = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "scrapes-itself"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "kubesched:metrics-reader",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "kubesched", "namespace": "kube-system"}],
    }
    await apply(cluster, reader)
    token = await service_account_token(cluster)
    kubeconfig = write_kubeconfig(cluster, tmp_path / "sa.kubeconfig", token=token)
    scheduler = await full_run(cluster, run, extender, kubeconfig, token)
    assert await scheduler.terminated() == 0
    assert "forbidden" not in scheduler.log.lower()
    assert "Unauthorized" not in scheduler.log


@REAL
async def test_a_rotated_token_is_used_without_a_restart(cluster, run, tmp_path):
    for obj in documents("rbac.yaml"):
        await apply(cluster, obj)
    token_file = tmp_path / "token"
    token_file.write_text(await service_account_token(cluster))
    kubeconfig = write_kubeconfig(cluster, tmp_path / "sa.kubeconfig", tokenFile=str(token_file))
    await cluster.add_node("n1")
    scheduler = await run(kubeconfig=kubeconfig, config={"leaderElection": {"leaderElect": False}})
    await cluster.add_pod("before")
    await cluster.bound("before")
    # The account is made anew, so the old token is worth nothing any more.
    path = "/api/v1/namespaces/kube-system/serviceaccounts/kubesched"
    await cluster.admin._write("DELETE", path, b"")
    (account,) = [
        document for document in documents("rbac.yaml") if document["kind"] == "ServiceAccount"
    ]
    await apply(cluster, account)
    token_file.write_text(await service_account_token(cluster))
    await cluster.add_pod("after")
    assert await cluster.bound("after") == ["n1"]
    assert scheduler.process.returncode is None
