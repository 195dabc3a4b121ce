"""Pod groups, composite pod groups and workloads: what is served, defaulted, admitted, dropped and
refused.

The answers were compared with kube-apiserver 1.37's.
"""

from __future__ import annotations

import random

import pytest

from kubesched.base.errors import BadRequest, Forbidden, Invalid
from kubesched.config import features
from kubesched.playground.auth.bootstrap_roles import create_roles
from kubesched.playground.client.local import LocalApi
from kubesched.playground.handlers.tables.columns import COLUMNS
from kubesched.playground.resources.validation.pod_groups import validate_group_status
from kubesched.playground.server.api_server import ApiServer
from tests.unit.playground.conftest import POD_GROUP_GATES, Http

GROUPS, COMPOSITES, WORKLOADS = (
    f"{plural}.scheduling.k8s.io" for plural in ("podgroups", "compositepodgroups", "workloads")
)
GANG = {"gang": {"minCount": 2}}
COMPOSITE_GANG = {"gang": {"minGroupCount": 2}}
REFERENCE = {"workloadName": "w", "templateName": "t"}
BASE = {
    GROUPS: {"schedulingPolicy": GANG},
    COMPOSITES: {"schedulingPolicy": COMPOSITE_GANG, "workloadRef": REFERENCE},
    WORKLOADS: {},
}


def create(api, resource, name="g", **spec):
    body = {"metadata": {"name": name}, "spec": {**BASE[resource], **spec}}
    return api.create(resource, body, "default")


def refused(api, resource, **spec):
    with pytest.raises(Invalid) as error:
        create(api, resource, **spec)
    return error.value.message.partition(" is invalid: ")[2]


def update_refused(api, resource, **spec):
    with pytest.raises(Invalid) as error:
        api.patch(resource, "default", "g", {"spec": spec})
    return error.value.message.partition(" is invalid: ")[2]


def of_gates(clock, text):
    return LocalApi.in_memory(clock=clock, rng=random.Random(7), gates=features.parse(text))


def template(name, **fields):
    return {"name": name, "schedulingPolicy": GANG, **fields}


def composite(name, **fields):
    return {"name": name, "schedulingPolicy": COMPOSITE_GANG, **fields}


# -- what is served -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gates", "versions", "resources"),
    [
        ("", {"v1": 1}, []),
        ("GenericWorkload=true", {"v1": 1, "v1beta1": 3}, ["podgroups", "workloads"]),
        (
            "GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true",
            {"v1": 1, "v1beta1": 3, "v1alpha3": 5},
            ["compositepodgroups", "podgroups", "workloads"],
        ),
    ],
)
async def test_gates_decide_which_versions_are_served(
    clock, gates, versions, resources
):  # scenario 92
    api = of_gates(clock, gates)
    http = Http(ApiServer(api.registry, clock=clock, rng=random.Random(7), token="secret"))
    group = await http.get("/apis/scheduling.k8s.io")
    assert group["preferredVersion"]["version"] == "v1"
    found = {
        version["version"]: len((await http.get(f"/apis/{version['groupVersion']}"))["resources"])
        for version in group["versions"]
    }
    assert found == versions
    create_roles(api.registry)
    for role in ("view", "edit", "admin", "system:kube-scheduler"):
        rules = api.get("clusterroles.rbac.authorization.k8s.io", None, role)["rules"]
        named = {
            resource.partition("/")[0]
            for rule in rules
            if rule["apiGroups"] == ["scheduling.k8s.io"]
            for resource in rule["resources"]
        }
        expected = set(resources) - ({"workloads"} if role == "system:kube-scheduler" else set())
        assert named == expected, role


async def test_both_versions_show_the_same_object(group_api, clock):
    http = Http(ApiServer(group_api.registry, clock=clock, rng=random.Random(7), token="secret"))
    path = "/apis/scheduling.k8s.io/{}/namespaces/default/podgroups"
    body = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": GANG}}
    made = await http.post(path.format("v1alpha3"), body)
    shown = await http.get(path.format("v1beta1") + "/g")
    assert made["apiVersion"] == "scheduling.k8s.io/v1alpha3"
    assert shown == {**made, "apiVersion": "scheduling.k8s.io/v1beta1"}


# -- defaults and admission -----------------------------------------------------------------------


def test_a_group_is_completed(group_api):
    made = create(group_api, GROUPS)
    assert made["spec"] == {
        "schedulingPolicy": GANG,
        "disruptionMode": {"single": {}},
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert made["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]
    assert made["status"] == {}
    assert "generation" not in made["metadata"]
    assert "finalizers" not in create(group_api, COMPOSITES)["metadata"]


def test_the_priority_is_that_of_the_class(group_api):  # scenario 72
    for name, value, policy in (("high", 10, "PreemptLowerPriority"), ("shy", 5, "Never")):
        group_api.create(
            "priorityclasses.scheduling.k8s.io",
            {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy},
        )
    assert create(group_api, GROUPS, priorityClassName="high")["spec"]["priority"] == 10

    def forbidden(resource, **spec):
        with pytest.raises(Forbidden) as error:
            create(group_api, resource, "x", **spec)
        return error.value.message.partition(" is forbidden: ")[2]

    assert forbidden(GROUPS, priorityClassName="none") == (
        "no PriorityClass with name none was found"
    )
    for resource, words in ((GROUPS, "pod group"), (COMPOSITES, "composite pod group")):
        assert forbidden(resource, priority=7) == (
            f"priority set in the {words} (7) must match the priority computed (0) based on the"
            " priority class set in the spec"
        )
        # The default is there before admission, so the policy of the class has to be repeated.
        assert forbidden(resource, priorityClassName="shy") == (
            f"the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in"
            f" {words} spec; priority admission controller computed Never from the given"
            " PriorityClass name"
        )
        stated = create(
            group_api, resource, "shy", priorityClassName="shy", preemptionPolicy="Never"
        )
        assert stated["spec"]["priority"] == 5
    assert refused(group_api, GROUPS, priorityClassName="system-node-critical") == (
        "spec.priority: Invalid value: 2000001000: must be less than or equal to 1000000000"
    )


def test_fields_are_dropped_without_their_gates(clock):
    api = of_gates(clock, "GenericWorkload=true")
    full = {
        "schedulingConstraints": {"topology": [{"key": "zone"}]},
        "resourceClaims": [{"name": "c", "resourceClaimName": "c"}],
        "preemptionPolicy": "Never",
    }
    spec = create(api, GROUPS, parentCompositePodGroupName="p", **full)["spec"]
    assert spec == {
        "schedulingPolicy": GANG,
        "disruptionMode": {"single": {}},
        "priority": 0,
    }
    made = create(api, WORKLOADS, podGroupTemplates=[template("t", **full)])
    shown = {**template("t"), "schedulingConstraints": None}
    assert made["spec"]["podGroupTemplates"] == [shown]
    status = {"resourceClaimStatuses": [{"name": "c"}]}
    assert (
        api.patch(GROUPS, "default", "g", {"status": status}, subresource="status")["status"] == {}
    )


def test_pods_name_a_group_only_with_the_gate(api, group_api, make_pod, clock):
    group = {"podGroupName": "later"}
    assert "schedulingGroup" not in api.create("pods", make_pod(schedulingGroup=group))["spec"]
    pod = group_api.create("pods", make_pod(schedulingGroup=group))
    assert pod["spec"]["schedulingGroup"] == group
    with pytest.raises(Invalid, match="pod updates may not change fields other than"):
        group_api.patch(
            "pods", "default", "p", {"spec": {"schedulingGroup": {"podGroupName": "other"}}}
        )
    for wrong, text in (
        ({}, "null: must specify one of: `podGroupName`"),
        ({"podGroupName": "A"}, '"A": a lowercase RFC 1123 subdomain'),
    ):
        with pytest.raises(Invalid) as error:
            group_api.create("pods", make_pod("wrong", schedulingGroup=wrong))
        assert f"spec.schedulingGroup.podGroupName: Invalid value: {text}" in error.value.message


# -- validation -----------------------------------------------------------------------------------

ONE_OF_TWO = "must specify exactly one of: `{0}`, `{1}`"


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"schedulingPolicy": {"basic": {}, **GANG}},
            'spec.schedulingPolicy: Invalid value: "{basic, gang}": '
            + ONE_OF_TWO.format("basic", "gang"),
        ),
        (
            {"schedulingPolicy": {}},
            'spec.schedulingPolicy: Invalid value: "": must specify one of: `basic`, `gang`',
        ),
        (
            {"schedulingPolicy": {"gang": {}}},
            "spec.schedulingPolicy.gang.minCount: Required value",
        ),
        (
            {"schedulingPolicy": {"gang": {"minCount": -1}}},
            "spec.schedulingPolicy.gang.minCount: Invalid value: -1: must be greater than or equal "
            "to"
            " 1",
        ),
        (
            {"disruptionMode": {"single": {}, "all": {}}},
            'spec.disruptionMode: Invalid value: "{single, all}": '
            + ONE_OF_TWO.format("single", "all"),
        ),
        (
            {"workloadRef": {"workloadName": "w"}},
            "spec.workloadRef.templateName: Required value",
        ),
        (
            {"parentCompositePodGroupName": "p"},
            "spec.workloadRef: Required value: must be set when parentCompositePodGroupName is set",
        ),
        (
            {"schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}},
            "spec.schedulingConstraints.topology: Too many: 2: must have at most 1 item",
        ),
        (
            {"schedulingConstraints": {"topology": [{}]}},
            "spec.schedulingConstraints.topology[0].key: Required value",
        ),
    ],
)
def test_what_a_group_must_not_say(group_api, spec, text):  # scenario 62
    assert refused(group_api, GROUPS, **spec) == text


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"schedulingPolicy": {"gang": None}},
            '[spec.schedulingPolicy: Invalid value: "": must specify one of: `basic`, `gang`,'
            " spec.schedulingPolicy.gang: Invalid value: null: field cannot be cleared once set]",
        ),
        (
            {"schedulingPolicy": {"gang": None, "basic": {}}},
            "[spec.schedulingPolicy.basic: Invalid value: null: field is immutable,"
            " spec.schedulingPolicy.gang: Invalid value: null: field cannot be cleared once set]",
        ),
        (
            {"schedulingPolicy": {"gang": {"minCount": 0}}},
            "spec.schedulingPolicy.gang.minCount: Required value",
        ),
        ({"priority": None}, "spec.priority: Invalid value: null: field is immutable"),
        (
            {"disruptionMode": {"single": None, "all": {}}},
            "spec.disruptionMode: Invalid value: null: field is immutable",
        ),
        ({"workloadRef": REFERENCE}, "spec.workloadRef: Invalid value: null: field is immutable"),
    ],
)
def test_only_the_minimum_of_a_gang_can_be_changed(group_api, spec, text):  # scenario 62
    create(group_api, GROUPS)
    assert update_refused(group_api, GROUPS, **spec) == text
    changed = {"spec": {"schedulingPolicy": {"gang": {"minCount": 5}}}}
    assert group_api.patch(GROUPS, "default", "g", changed)["spec"]["schedulingPolicy"] == (
        {"gang": {"minCount": 5}}
    )


def test_nothing_of_a_composite_group_can_be_changed(group_api):  # scenario 87
    assert refused(group_api, COMPOSITES, workloadRef=None) == "spec.workloadRef: Required value"
    create(group_api, COMPOSITES)
    changed = {"gang": {"minGroupCount": 1}}
    assert update_refused(group_api, COMPOSITES, schedulingPolicy=changed) == (
        "spec.schedulingPolicy: Invalid value: null: field is immutable"
    )


def nested(depth):
    if depth == 1:
        return composite("c1", podGroupTemplates=[template("leaf")])
    return composite(f"c{depth}", compositePodGroupTemplates=[nested(depth - 1)])


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {},
            'spec: Invalid value: "": must specify one of: `podGroupTemplates`,'
            " `compositePodGroupTemplates`",
        ),
        (
            {"podGroupTemplates": [template(f"t{number}") for number in range(9)]},
            "spec.podGroupTemplates: Too many: 9: must have at most 8 items",
        ),
        (
            {"podGroupTemplates": [template("a", priority=3), template("b")]},
            "spec: Invalid value: null: detected multiple priority configurations",
        ),
        (
            {
                "compositePodGroupTemplates": [
                    composite("a", priority=3, podGroupTemplates=[template("b", priority=4)])
                ]
            },
            "spec: Invalid value: null: all priority and priorityClassName values must be "
            "identical,"
            " detected multiple values",
        ),
        (
            {"compositePodGroupTemplates": [composite("a")]},
            'spec.compositePodGroupTemplates[0]: Invalid value: "a": must have at least one child'
            " PodGroupTemplate or CompositePodGroupTemplate",
        ),
        (
            {"compositePodGroupTemplates": [composite("a", podGroupTemplates=[template("a")])]},
            'spec.compositePodGroupTemplates[0].podGroupTemplates[0].name: Duplicate value: "a"',
        ),
        (
            {"controllerRef": {"kind": "a/b"}, "podGroupTemplates": [template("a")]},
            "[spec.controllerRef.kind: Invalid value: \"a/b\": may not contain '/',"
            " spec.controllerRef.name: Required value]",
        ),
    ],
)
def test_what_a_workload_must_not_say(group_api, spec, text):
    assert refused(group_api, WORKLOADS, **spec) == text


def test_templates_are_nested_three_deep_at_most(group_api):  # scenario 86
    assert create(group_api, WORKLOADS, compositePodGroupTemplates=[nested(3)])
    assert refused(group_api, WORKLOADS, compositePodGroupTemplates=[nested(4)]).endswith(
        "maximum template hierarchy depth is 4"
    )
    wrong = nested(3)
    deepest = wrong["compositePodGroupTemplates"][0]["compositePodGroupTemplates"][0]
    deepest["podGroupTemplates"][0]["priority"] = "high"
    with pytest.raises(BadRequest, match="cannot unmarshal string into Go struct field"):
        create(group_api, WORKLOADS, compositePodGroupTemplates=[wrong])


def test_templates_come_and_go_only_with_their_workload(group_api):
    create(group_api, WORKLOADS, podGroupTemplates=[template("one"), template("two")])
    assert update_refused(
        group_api, WORKLOADS, podGroupTemplates=[template("one"), template("three")]
    ) == (
        "[spec.podGroupTemplates[1]: Forbidden: item may not be added,"
        " spec.podGroupTemplates: Forbidden: item may not be removed]"
    )
    larger = template("one", schedulingPolicy={"gang": {"minCount": 9}})
    other = template("two", disruptionMode={"all": {}})
    assert update_refused(group_api, WORKLOADS, podGroupTemplates=[other, larger]) == (
        "spec.podGroupTemplates[0].disruptionMode: Invalid value: null: field is immutable"
    )
    fine = {"spec": {"podGroupTemplates": [template("two"), larger]}}
    assert group_api.patch(WORKLOADS, "default", "g", fine)


# -- status ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conditions", "shown"),
    [
        ([], "Pending"),
        ([("PodGroupInitiallyScheduled", "True", "Scheduled")], "Scheduled"),
        ([("PodGroupInitiallyScheduled", "False", "SchedulerError")], "Unschedulable"),
        (
            [
                ("PodGroupInitiallyScheduled", "True", "Scheduled"),
                ("DisruptionTarget", "True", "PreemptionByScheduler"),
            ],
            "PreemptionByScheduler",
        ),
    ],
)
def test_the_status_of_a_group_is_a_word(group_api, conditions, shown):
    create(group_api, GROUPS)
    status = {
        "conditions": [
            {"type": kind, "status": value, "reason": reason, "message": "",
             "lastTransitionTime": "2026-01-01T00:00:00Z"}
            for kind, value, reason in conditions
        ]
    }  # fmt: skip
    patched = group_api.patch(
        GROUPS,
        "default",
        "g",
        {"metadata": {"labels": {"a": "b"}}, "status": status},
        subresource="status",
    )
    assert "labels" not in patched["metadata"]
    cells = {column.name: column.cell(patched, 0.0) for column in COLUMNS[GROUPS][:-1]}
    assert cells == {"Name": "g", "Policy": "Gang", "Workload": "<none>", "Status": shown}


def test_conditions_are_checked(group_api):
    create(group_api, GROUPS)
    with pytest.raises(Invalid) as error:
        group_api.patch(
            GROUPS,
            "default",
            "g",
            {"status": {"conditions": [{"type": "x", "status": "Maybe"}]}},
            subresource="status",
        )
    assert error.value.message.endswith(
        '[status.conditions[0].status: Unsupported value: "Maybe": supported values: "False",'
        ' "True", "Unknown", status.conditions[0].lastTransitionTime: Required value,'
        " status.conditions[0].reason: Required value]"
    )


# -- protection -----------------------------------------------------------------------------------


def test_a_deleted_group_stays_until_its_pods_are_gone(make_world, make_pod):
    world = make_world(gates=POD_GROUP_GATES)
    create(world.api, GROUPS, "used")
    create(world.api, GROUPS, "unused")
    world.api.create("pods", make_pod(schedulingGroup={"podGroupName": "used"}))
    for name in ("used", "unused"):
        world.api.delete(GROUPS, "default", name)
    world.settle()
    assert [group["metadata"]["name"] for group in world.list(GROUPS)] == ["used"]
    world.api.delete("pods", "default", "p")
    world.run(60)
    assert world.list(GROUPS) == []


@pytest.mark.parametrize(
    ("statuses", "problems"),
    [
        ([{"name": "a", "resourceClaimName": "g-a-x"}, {"name": "b"}], []),
        (
            [{"name": "c"}],
            [
                'status.resourceClaimStatuses[0].name: Invalid value: "c": '
                "must match the name of an entry in `spec.resourceClaims`"
            ],
        ),
        (
            [{"name": "a", "resourceClaimName": "A!"}],
            ["status.resourceClaimStatuses[0].resourceClaimName: Invalid value"],
        ),
        ([{"name": "a"}] * 5, ["status.resourceClaimStatuses: Too many: 5"]),
        ([{"name": "a"}, {"name": "a"}], ["status.resourceClaimStatuses[1]: Duplicate value"]),
    ],
)
def test_names_of_claims_in_the_status_are_checked(statuses, problems):
    entries = [{"name": name, "resourceClaimTemplateName": "t"} for name in "ab"]
    group = {"spec": {"resourceClaims": entries}, "status": {"resourceClaimStatuses": statuses}}
    found = [str(problem) for problem in validate_group_status(group)]
    assert [text.startswith(start) for text, start in zip(found, problems, strict=True)] == [
        True for _ in problems
    ], found
