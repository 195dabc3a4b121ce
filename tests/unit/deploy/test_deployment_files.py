"""Manifests and chart: in step with each other, safe by default, with the permissions the
specification lists.
"""

from __future__ import annotations

import json
import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from kubesched.api.core_v1 import Namespace, Node, Pod
from kubesched.api.kinds import kind_of
from kubesched.app.flag_parsing import parse
from kubesched.app.settings import complete
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.load import default_config
from kubesched.config.load import load as load_config
from kubesched.framework.profile import enabled_plugins
from kubesched.plugins.registry import in_tree_registry

DEPLOY = Path(__file__).parents[3] / "deploy"

# What kube-scheduler's own roles allow it (spec: RBAC table). Ours must stay within.
UPSTREAM = {
    ("", "events"): "create patch update",
    ("events.k8s.io", "events"): "create patch update",
    ("", "nodes"): "get list watch",
    ("", "namespaces"): "get list watch",
    ("", "services"): "get list watch",
    ("", "replicationcontrollers"): "get list watch",
    ("", "pods"): "get list watch delete",
    ("", "pods/binding"): "create",
    ("", "bindings"): "create",
    ("", "pods/status"): "patch update",
    ("", "pods/finalizers"): "update",
    ("", "persistentvolumes"): "get list watch update patch",
    ("", "persistentvolumeclaims"): "get list watch update patch",
    ("apps", "replicasets"): "get list watch",
    ("extensions", "replicasets"): "get list watch",
    ("apps", "statefulsets"): "get list watch",
    ("policy", "poddisruptionbudgets"): "get list watch",
    ("storage.k8s.io", "csinodes"): "get list watch",
    ("storage.k8s.io", "csidrivers"): "get list watch",
    ("storage.k8s.io", "csistoragecapacities"): "get list watch",
    ("storage.k8s.io", "volumeattachments"): "get list watch",
    ("storage.k8s.io", "storageclasses"): "get list watch",
    ("resource.k8s.io", "deviceclasses"): "get list watch",
    ("resource.k8s.io", "devicetaintrules"): "get list watch",
    ("resource.k8s.io", "resourceslices"): "get list watch",
    ("resource.k8s.io", "resourceclaims"): "get list watch update patch create delete",
    ("resource.k8s.io", "resourceclaims/status"): "get list watch update patch",
    ("resource.k8s.io", "resourceclaims/binding"): "update patch",
    ("scheduling.k8s.io", "podgroups"): "get list watch",
    ("scheduling.k8s.io", "podgroups/status"): "update patch",
    ("scheduling.k8s.io", "compositepodgroups"): "get list watch",
    ("scheduling.k8s.io", "compositepodgroups/status"): "update patch",
}


def by_kind(objects, kind, name=None):
    return [
        item
        for item in objects
        if item["kind"] == kind and name in (None, item["metadata"]["name"])
    ]


def everything(files):
    return [item for objects in files.values() for item in objects]


def by_name(objects):
    """Without an order: helm has one of its own."""
    return sorted(objects, key=lambda item: (item["kind"], item["metadata"]["name"]))


def granted(rules):
    results = {}
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                results.setdefault((group, resource), set()).update(rule["verbs"])
    return results


def test_the_scheduler_may_no_more_than_kube_scheduler(manifests):
    (role,) = by_kind(manifests["rbac.yaml"], "ClusterRole", "kubesched")
    for target, verbs in granted(role["rules"]).items():
        assert target in UPSTREAM, f"{target} is not in kube-scheduler's role"
        assert verbs <= set(UPSTREAM[target].split()), target
    assert not any("*" in str(rule) for rule in role["rules"])


def test_a_shadow_may_read_what_it_watches_and_nothing_else(manifests):
    (role,) = by_kind(manifests["shadow-rbac.yaml"], "ClusterRole", "kubesched:shadow")
    registry, config = in_tree_registry(), default_config()
    kinds = {Pod, Node, Namespace}
    for plugin in enabled_plugins(config, registry):
        kinds |= set(plugin.kinds_to_list(DEFAULT_GATES))
    watched = {(kind_of(kind).group, kind_of(kind).plural) for kind in kinds}
    rights = granted(role["rules"])
    assert watched <= rights.keys()
    assert all(verbs == {"list", "watch"} for verbs in rights.values())


def test_leases_are_limited_to_one_name(manifests):
    (role,) = by_kind(manifests["rbac.yaml"], "Role", "kubesched")
    create, use = role["rules"]
    assert create["verbs"] == ["create"]
    assert use["resourceNames"] == ["kubesched"]
    (config,) = by_kind(manifests["configmap.yaml"], "ConfigMap")
    election = yaml.safe_load(config["data"]["scheduler.yaml"])["leaderElection"]
    assert use["resourceNames"] == [election["resourceName"]]
    assert role["metadata"]["namespace"] == election["resourceNamespace"]


def test_secrets_cannot_be_read(manifests):
    rules = [
        rule
        for role in everything(manifests)
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
    ]
    assert not any("secrets" in rule.get("resources", ()) for rule in rules)


def pod_specs(files):
    for item in everything(files):
        if item["kind"] == "Pod":
            yield item["spec"]
        elif item["kind"] == "Deployment":
            yield item["spec"]["template"]["spec"]


def test_containers_are_locked_down(manifests, chart):
    for files in (manifests, chart()):
        for spec in pod_specs(files):
            assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            for container in spec["containers"]:
                security = container["securityContext"]
                assert security["readOnlyRootFilesystem"] is True
                assert security["allowPrivilegeEscalation"] is False
                assert security["capabilities"] == {"drop": ["ALL"]}


def test_the_deployment_does_not_run_as_root(manifests):
    (deployment,) = by_kind(manifests["deployment.yaml"], "Deployment")
    assert deployment["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"] is True


def test_probes_ask_for_pages_that_are_open_to_everybody(manifests):
    for spec in pod_specs(manifests):
        for container in spec["containers"]:
            for kind, path in (
                ("livenessProbe", "/livez"),
                ("readinessProbe", "/readyz"),
                ("startupProbe", "/livez"),
            ):
                probe = container[kind]["httpGet"]
                assert (probe["path"], probe["scheme"]) == (path, "HTTPS")


def test_the_grace_period_is_long_enough_to_drain(manifests):
    (deployment,) = by_kind(manifests["deployment.yaml"], "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    options = parse(spec["containers"][0]["args"][1:]).options
    assert spec["terminationGracePeriodSeconds"] >= options.drain_timeout + 15


def test_arguments_and_configuration_are_accepted_by_the_program(manifests, tmp_path):
    (config,) = by_kind(manifests["configmap.yaml"], "ConfigMap")
    text = config["data"]["scheduler.yaml"]
    loaded = load_config(text.encode(), "scheduler.yaml")
    assert [profile.scheduler_name for profile in loaded.profiles] == ["kubesched"]
    path = tmp_path / "scheduler.yaml"
    path.write_text(text)
    for spec in pod_specs(manifests):
        words = spec["containers"][0]["args"]
        assert words[0] == "run"
        given = [f"--config={path}" if word.startswith("--config=") else word for word in words[1:]]
        complete(parse(given), DEFAULT_GATES)


def test_replicas_keep_apart_and_selectors_fit(manifests):
    (deployment,) = by_kind(manifests["deployment.yaml"], "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert selector.items() <= labels.items()
    (budget,) = manifests["poddisruptionbudget.yaml"]
    assert budget["spec"]["selector"]["matchLabels"] == selector
    (service,) = manifests["service.yaml"]
    assert service["spec"]["selector"] == selector
    (monitor,) = manifests["servicemonitor.yaml"]
    assert (
        monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    )
    affinity = deployment["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    (term,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["labelSelector"]["matchLabels"] == selector
    assert deployment["spec"]["replicas"] > budget["spec"]["maxUnavailable"]


def test_the_chart_renders_the_plain_manifests_by_default(manifests, chart):
    on = {"enabled": True}
    rendered = chart(serviceMonitor=on, prometheusRule=on, networkPolicy=on)
    assert rendered.pop("dashboard.yaml") == []
    (deployment,) = rendered["deployment.yaml"]
    del deployment["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
    del deployment["spec"]["template"]["metadata"]["annotations"]
    (config,) = rendered["configmap.yaml"]
    (plain_config,) = manifests["configmap.yaml"]
    assert yaml.safe_load(config["data"].pop("scheduler.yaml")) == yaml.safe_load(
        plain_config["data"]["scheduler.yaml"]
    )
    for name, objects in rendered.items():
        expected = json.loads(json.dumps(manifests[name]))
        if name == "configmap.yaml":
            del expected[0]["data"]["scheduler.yaml"]
        assert by_name(objects) == by_name(expected), name


def test_the_chart_follows_its_values(chart):
    rendered = chart(
        name="second",
        namespace="scheduling",
        replicas=3,
        image={"repository": "mirror/kubesched", "tag": "9", "pullPolicy": "Always"},
        extraArgs=["--feature-gates=A=true", "-v=2"],
        imagePullSecrets=[{"name": "pull"}],
        nodeSelector={"role": "control"},
        tolerations=[],
        priorityClassName="",
        podDisruptionBudget={"enabled": False},
        leaderElection={"resourceName": "mine"},
    )
    (deployment,) = rendered["deployment.yaml"]
    spec = deployment["spec"]["template"]["spec"]
    assert deployment["metadata"] == {
        "name": "second",
        "namespace": "scheduling",
        "labels": {"app.kubernetes.io/name": "second"},
    }
    assert deployment["spec"]["replicas"] == 3
    assert spec["containers"][0]["image"] == "mirror/kubesched:9"
    assert spec["containers"][0]["args"][-2:] == ["--feature-gates=A=true", "-v=2"]
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert spec["nodeSelector"] == {"role": "control"}
    assert "tolerations" not in spec
    assert "priorityClassName" not in spec
    assert rendered["poddisruptionbudget.yaml"] == []
    assert rendered["servicemonitor.yaml"] == []
    (role,) = by_kind(rendered["rbac.yaml"], "Role", "second")
    assert role["rules"][1]["resourceNames"] == ["mine"]
    assert role["metadata"]["namespace"] == "scheduling"
    reader = by_kind(
        rendered["rbac.yaml"], "RoleBinding", "second:extension-apiserver-authentication-reader"
    )
    assert reader[0]["metadata"]["namespace"] == "kube-system"
    assert reader[0]["subjects"][0]["namespace"] == "scheduling"


def test_pods_get_what_the_values_add(chart):
    mount = {"name": "plugins", "mountPath": "/plugins", "readOnly": True}
    volume = {"name": "plugins", "configMap": {"name": "my-plugins"}}
    variable = {"name": "PYTHONPATH", "value": "/plugins"}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    (deployment,) = chart(
        env=[variable],
        extraVolumes=[volume],
        extraVolumeMounts=[mount],
        affinity=affinity,
        podAnnotations={"example.com/owner": "platform"},
        podLabels={"team": "platform"},
    )["deployment.yaml"]
    template = deployment["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert container["env"] == [variable]
    assert [m["name"] for m in container["volumeMounts"]] == ["config", "tmp", "plugins"]
    assert container["volumeMounts"][-1] == mount
    assert [v["name"] for v in template["spec"]["volumes"]] == ["config", "tmp", "plugins"]
    assert template["spec"]["volumes"][-1] == volume
    assert template["spec"]["affinity"] == affinity
    assert template["metadata"]["labels"] == {
        "app.kubernetes.io/name": "kubesched",
        "team": "platform",
    }
    assert set(template["metadata"]["annotations"]) == {"checksum/config", "example.com/owner"}
    assert deployment["spec"]["selector"]["matchLabels"] == {"app.kubernetes.io/name": "kubesched"}


def test_the_page_comes_with_an_account_that_may_look_and_nothing_else(chart):
    assert "page" not in str(chart()["rbac.yaml"])
    files = chart(page={"enabled": True})
    (deployment,) = by_kind(everything(files), "Deployment")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--page" in arguments
    parse(arguments[1:])
    (role,) = by_kind(everything(files), "ClusterRole", "kubesched:page-reader")
    assert role["rules"] == [
        {"nonResourceURLs": ["/debug/page", "/debug/page/*"], "verbs": ["get", "post"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    ]
    (binding,) = by_kind(everything(files), "ClusterRoleBinding", "kubesched:page-reader")
    (account,) = by_kind(everything(files), "ServiceAccount", "kubesched-page")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [each["name"] for each in binding["subjects"]] == [account["metadata"]["name"]]


def test_a_changed_configuration_restarts_the_pods(chart):
    def checksum(**values):
        (deployment,) = chart(**values)["deployment.yaml"]
        return deployment["spec"]["template"]["metadata"]["annotations"]["checksum/config"]

    assert checksum() == checksum()
    assert checksum() != checksum(config={"profiles": [{"schedulerName": "other"}]})
    assert checksum() != checksum(leaderElection={"retryPeriod": "1s"})


def test_the_charts_configuration_is_accepted_by_the_program(chart):
    def configured(**values):
        (config,) = chart(namespace="mine", **values)["configmap.yaml"]
        return load_config(config["data"]["scheduler.yaml"].encode(), "scheduler.yaml")

    plain = configured()
    assert [profile.scheduler_name for profile in plain.profiles] == ["kubesched"]
    assert plain.leader_election.resource_name == "kubesched"
    assert plain.leader_election.resource_namespace == "mine"
    special = configured(
        config={"profiles": None, "parallelism": 4}, leaderElection={"retryPeriod": "1s"}
    )
    assert [profile.scheduler_name for profile in special.profiles] == ["default-scheduler"]
    assert special.parallelism == 4
    assert special.leader_election.retry_period_s == 1.0


def test_rbac_can_be_left_to_others(chart):
    assert chart(rbac={"create": False})["rbac.yaml"] == []


def test_with_plugins_the_scheduler_may_read_what_they_list(chart):
    project = tomllib.loads((DEPLOY.parent / "plugins" / "pyproject.toml").read_text())["project"]
    (role,) = by_kind(chart(plugins={"enabled": True})["rbac.yaml"], "ClusterRole", "kubesched")
    allowed = {
        (group, resource)
        for rule in role["rules"]
        if {"list", "watch"} <= set(rule["verbs"])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    (plain,) = by_kind(chart()["rbac.yaml"], "ClusterRole", "kubesched")
    assert len(plain["rules"]) < len(role["rules"])
    for target in project["entry-points"]["kubesched.plugins"].values():
        module, _, name = target.partition(":")
        for kind in map(kind_of, getattr(import_module(module), name).lists):
            assert (kind.group, kind.plural) in allowed, name


def test_default_values_satisfy_the_charts_schema():
    folder = DEPLOY / "helm" / "kubesched"
    schema = json.loads((folder / "values.schema.json").read_text())
    values = yaml.safe_load((folder / "values.yaml").read_text())
    check_schema(values, schema, "values")


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": "two"},
        {"unknown": 1},
        {"image": {"repository": "x"}},
        {"extraArgs": "-v=1"},
        {"env": {"PYTHONPATH": "/plugins"}},
        {"extraVolumeMounts": [{"name": "plugins"}]},
        {"affinity": []},
        {"config": {"leaderElection": {"leaderElect": False}}},
        {"leaderElection": {"resourceName": "x", "leaderElect": False}},
    ],
    ids=str,
)
def test_wrong_values_do_not_satisfy_it(change):
    folder = DEPLOY / "helm" / "kubesched"
    schema = json.loads((folder / "values.schema.json").read_text())
    values = yaml.safe_load((folder / "values.yaml").read_text())
    with pytest.raises(AssertionError):
        check_schema({**values, **change}, schema, "values")


TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
}


def check_schema(value, schema, path):
    """The few words of JSON Schema that the chart uses."""
    assert schema is not False, f"{path} cannot be set"
    known = {
        "$schema",
        "type",
        "additionalProperties",
        "required",
        "properties",
        "minimum",
        "minLength",
        "enum",
        "items",
    }
    assert set(schema) <= known, f"{path}: not checked here: {set(schema) - known}"
    if "type" in schema:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        assert any(isinstance(value, TYPES[kind]) for kind in kinds), path
    if "enum" in schema:
        assert value in schema["enum"], path
    assert not isinstance(value, int) or value >= schema.get("minimum", value), path
    assert not isinstance(value, str) or len(value) >= schema.get("minLength", 0), path
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        assert set(schema.get("required", ())) <= set(value), path
        if schema.get("additionalProperties") is False:
            assert set(value) <= set(properties), f"{path}: {set(value) - set(properties)}"
        for name, item in value.items():
            check_schema(item, properties.get(name, {}), f"{path}.{name}")
    if isinstance(value, list):
        for index, item in enumerate(value):
            check_schema(item, schema.get("items", {}), f"{path}[{index}]")


def test_versions_agree():
    from kubesched import __version__

    folder = DEPLOY / "helm" / "kubesched"
    chart = yaml.safe_load((folder / "Chart.yaml").read_text())
    values = yaml.safe_load((folder / "values.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == values["image"]["tag"] == __version__
    root = DEPLOY.parent
    texts = [each for each in (root / "deploy").rglob("*") if each.is_file()]
    texts += [*(root / "docs").rglob("*.md"), *(root / "plugins").glob("*.md")]
    named = {
        (str(text.relative_to(root)), version)
        for text in texts
        for version in re.findall(r"\bkubesched:(\d+\.\d+\.\w+)", text.read_text())
    }
    assert "deploy/Containerfile" in {path for path, _ in named}
    assert {each for each in named if each[1] != __version__} == set()


def test_the_image_is_built_from_one_base_that_cannot_change():
    stages = re.findall(r"^FROM (\S+)", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    assert len(stages) == 2
    assert len(set(stages)) == 1
    assert re.fullmatch(r"python:3\.\d+-slim@sha256:[0-9a-f]{64}", stages[0])
