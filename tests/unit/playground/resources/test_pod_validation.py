"""What a pod may not say, in the words of a real server, and what may still change once it
exists.
"""

from __future__ import annotations

import pytest

from kubesched.base.errors import Invalid


def container(**fields):
    return {"name": "main", "image": "app:1", **fields}


def required_affinity(*terms):
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}
        }
    }


CASES = [
    pytest.param({"containers": []}, ["spec.containers: Required value"], id="no containers"),
    pytest.param(
        {
            "securityContext": {
                "sysctls": [{"name": "kernel.shmmax", "value": "1"}, {"name": "bar.."}]
            }
        },
        [
            'spec.securityContext.sysctls[1].name: Invalid value: "bar..": must have at most 253 '
            "characters and match regex "
            "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
        ],
        id="no sysctl",
    ),
    pytest.param(
        {"containers": [{"name": "a"}]}, ["spec.containers[0].image: Required value"], id="no image"
    ),
    pytest.param(
        {"containers": [{"image": "i"}]},
        ["spec.containers[0].name: Required value"],
        id="no container name",
    ),
    pytest.param(
        {"containers": [container(), container()]},
        ['spec.containers[1].name: Duplicate value: "main"'],
        id="two containers of one name",
    ),
    pytest.param(
        {"containers": [container(name="Bad_Name")]},
        ['spec.containers[0].name: Invalid value: "Bad_Name": a lowercase RFC 1123 label'],
        id="a container name that is no label",
    ),
    pytest.param(
        {"restartPolicy": "Sometimes"},
        [
            'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", '
            '"OnFailure", "Never"'
        ],
        id="an unknown restart policy",
    ),
    pytest.param(
        {"containers": [container(ports=[{"containerPort": 70000}])]},
        [
            "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 "
            "and 65535, inclusive"
        ],
        id="a port out of range",
    ),
    pytest.param(
        {"containers": [container(volumeMounts=[{"name": "ghost", "mountPath": "/x"}])]},
        ['spec.containers[0].volumeMounts[0].name: Not found: "ghost"'],
        id="a mount without its volume",
    ),
    pytest.param(
        {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]},
        ["spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"],
        id="a volume of two types",
    ),
    pytest.param(
        {"containers": [container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})]},
        [
            'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal '
            "to cpu limit of 1"
        ],
        id="a request above its limit",
    ),
    pytest.param(
        {"containers": [container(resources={"requests": {"memory": "-1"}})]},
        [
            'spec.containers[0].resources.requests[memory]: Invalid value: "-1": must be greater '
            "than or equal to 0"
        ],
        id="a negative request",
    ),
    pytest.param(
        {"containers": [container(resources={"limits": {"example.com/gpu": "500m"}})]},
        [
            'spec.containers[0].resources.limits[example.com/gpu]: Invalid value: "500m": must be '
            "an integer",
            'spec.containers[0].resources.requests[example.com/gpu]: Invalid value: "500m": must '
            "be an integer",
        ],
        id="half a device",
    ),
    pytest.param(
        {"tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]},
        ["value must be empty when `operator` is 'Exists'"],
        id="a toleration of any value with a value",
    ),
    pytest.param(
        {"tolerations": [{"key": "k", "effect": "NoSchedule", "tolerationSeconds": 5}]},
        ["effect must be 'NoExecute' when `tolerationSeconds` is set"],
        id="seconds without eviction",
    ),
    pytest.param(
        {"nodeSelector": {"-bad-": "x"}},
        ['spec.nodeSelector: Invalid value: "-bad-"'],
        id="a node selector key that is no label",
    ),
    pytest.param(
        {"affinity": required_affinity()},
        ["nodeSelectorTerms: Required value: must have at least one node selector term"],
        id="a node affinity without terms",
    ),
    pytest.param(
        {"affinity": required_affinity({"matchExpressions": [{"key": "a", "operator": "In"}]})},
        ["values: Required value: must be specified when `operator` is 'In' or 'NotIn'"],
        id="In without values",
    ),
    pytest.param(
        {
            "affinity": {
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 101, "podAffinityTerm": {}}
                    ]
                }
            }
        },
        [
            "weight: Invalid value: 101: must be in the range 1-100",
            "topologyKey: Required value: can not be empty",
            'topologyKey: Invalid value: "": name part must be non-empty',
            'topologyKey: Invalid value: "": name part must consist of alphanumeric characters',
        ],
        id="a weight out of range and a term without a key",
    ),
    pytest.param(
        {
            "topologySpreadConstraints": [
                {"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "Maybe"},
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "Maybe"},
            ]
        },
        [
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than "
            "zero",
            '[0].whenUnsatisfiable: Unsupported value: "Maybe": supported values: "DoNotSchedule", '
            '"ScheduleAnyway"',
            '[1].whenUnsatisfiable: Unsupported value: "Maybe": supported values: "DoNotSchedule", '
            '"ScheduleAnyway"',
            "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "
            '"{zone, Maybe}"',
        ],
        id="spread constraints with every fault at once",
    ),
    pytest.param(
        {"schedulingGates": [{"name": "g"}, {"name": "g"}]},
        ['spec.schedulingGates[1]: Duplicate value: "g"'],
        id="two gates of one name",
    ),
    pytest.param(
        {"schedulingGates": [{"name": "g"}], "nodeName": "n"},
        ["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"],
        id="a gated pod that names its node",
    ),
]


@pytest.mark.parametrize(("spec", "problems"), CASES)
def test_a_pod_that_breaks_a_rule_is_refused_by_name_and_field(api, make_pod, spec, problems):
    before = api.registry.store.revision
    with pytest.raises(Invalid) as caught:
        api.create("pods", make_pod("p", **spec))
    assert caught.value.message.startswith('Pod "p" is invalid: ')
    for problem in problems:
        assert problem in caught.value.message
    assert len(caught.value.details["causes"]) == len(problems)
    assert api.registry.store.revision == before, "nothing is half-written"


def updated(api, make_pod, before: dict, after: dict):
    api.create("pods", make_pod("p", **before))
    return api.patch("pods", "default", "p", {"spec": after}, "merge")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, {"containers": [container(image="app:2")]}, id="a new image"),
        pytest.param({}, {"activeDeadlineSeconds": 10}, id="a first deadline"),
        pytest.param(
            {"activeDeadlineSeconds": 10}, {"activeDeadlineSeconds": 5}, id="an earlier deadline"
        ),
        pytest.param(
            {"schedulingGates": [{"name": "g"}]}, {"schedulingGates": None}, id="a gate removed"
        ),
        pytest.param(
            {"schedulingGates": [{"name": "g"}], "nodeSelector": {"a": "b"}},
            {"nodeSelector": {"c": "d"}},
            id="a gated pod that becomes choosier",
        ),
    ],
)
def test_what_may_change_changes(api, make_pod, before, after):
    updated(api, make_pod, before, after)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        pytest.param(
            {},
            {"nodeName": "n"},
            "pod updates may not change fields other than",
            id="moving to a node",
        ),
        pytest.param(
            {},
            {"hostNetwork": True},
            "pod updates may not change fields other than",
            id="the network",
        ),
        pytest.param(
            {"nodeSelector": {"a": "b"}},
            {"nodeSelector": {"c": "d"}},
            "may not change",
            id="node selection",
        ),
        pytest.param(
            {"tolerations": [{"key": "a", "operator": "Exists"}]},
            {"tolerations": [{"key": "b", "operator": "Exists"}]},
            "existing toleration can not be modified",
            id="a toleration taken away",
        ),
        pytest.param(
            {"schedulingGates": [{"name": "g"}]},
            {"schedulingGates": [{"name": "h"}]},
            "only deletion is allowed, but found new scheduling gate 'h'",
            id="another gate",
        ),
        pytest.param(
            {"activeDeadlineSeconds": 5},
            {"activeDeadlineSeconds": 10},
            "must be less than or equal to previous value 5",
            id="a later deadline",
        ),
        pytest.param(
            {"schedulingGates": [{"name": "g"}], "nodeSelector": {"a": "b"}},
            {"nodeSelector": {"a": "x"}},
            "only additions are allowed",
            id="a gated pod that changes its mind",
        ),
    ],
)
def test_what_is_fixed_stays(api, make_pod, before, after, words):
    with pytest.raises(Invalid, match=words):
        updated(api, make_pod, before, after)


def test_a_toleration_may_be_added(api, make_pod):
    pod = api.create("pods", make_pod("p"))
    more = [*pod["spec"]["tolerations"], {"key": "x", "operator": "Exists"}]
    assert (
        len(
            api.patch("pods", "default", "p", {"spec": {"tolerations": more}})["spec"][
                "tolerations"
            ]
        )
        == 3
    )
