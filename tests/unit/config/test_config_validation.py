"""Proves upstream's validation cases for whole configurations: what passes, what fails, where, in
which words.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kubesched.config.features import DEFAULT_GATES
from kubesched.config.plugin_args import DefaultPreemptionArgs, InterPodAffinityArgs
from kubesched.config.schema import RawArgs
from kubesched.config.types import (
    ClientConnectionConfiguration,
    Extender,
    ExtenderManagedResource,
    ExtenderTLSConfig,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    LeaderElectionConfiguration,
    Plugin,
    PluginConfig,
    Plugins,
    PluginSet,
)
from kubesched.config.validation import validate, validate_start

CUSTOM_SORT = PluginSet(enabled=(Plugin("CustomSort"),))
FIRST = KubeSchedulerProfile(
    scheduler_name="me",
    percentage_of_nodes_to_score=35,
    plugins=Plugins(queue_sort=CUSTOM_SORT, score=PluginSet(disabled=(Plugin("*"),))),
    plugin_config=(PluginConfig("DefaultPreemption", DefaultPreemptionArgs()),),
)
SECOND = KubeSchedulerProfile(
    scheduler_name="other",
    percentage_of_nodes_to_score=35,
    plugins=Plugins(queue_sort=CUSTOM_SORT, bind=PluginSet(enabled=(Plugin("CustomBind"),))),
)
GOOD = KubeSchedulerConfiguration(
    parallelism=8,
    client_connection=ClientConnectionConfiguration(
        accept_content_types="application/json", content_type="application/json", qps=10, burst=10
    ),
    leader_election=LeaderElectionConfiguration(
        lease_duration_s=30,
        renew_deadline_s=15,
        retry_period_s=5,
        resource_namespace="name",
        resource_name="name",
    ),
    pod_initial_backoff_seconds=1,
    pod_max_backoff_seconds=1,
    profiles=(FIRST, SECOND),
    extenders=(Extender(url_prefix="http://e", prioritize_verb="prioritize", weight=1),),
)
VERSION_1 = (
    'was invalid in version "v1" '
    '(KubeSchedulerConfiguration is version "kubescheduler.config.k8s.io/v1")'
)


def problems(**changes) -> list[str]:
    return [str(problem) for problem in validate(replace(GOOD, **changes), DEFAULT_GATES)]


def election(**changes):
    return {"leader_election": replace(GOOD.leader_election, **changes)}


def first(**changes):
    return {"profiles": (replace(FIRST, **changes), SECOND)}


def second(**changes):
    return {"profiles": (FIRST, replace(SECOND, **changes))}


def extender(**changes):
    return {"extenders": (replace(GOOD.extenders[0], **changes),)}


def scoring(*names: str) -> Plugins:
    return replace(FIRST.plugins, score=PluginSet(enabled=tuple(Plugin(name) for name in names)))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="a good configuration"),
        pytest.param(first(plugins=scoring("PodTopologySpread")), id="another score plugin"),
        pytest.param(
            {"enable_profiling": False, "enable_contention_profiling": True},
            id="contention profiling without profiling",
        ),
        pytest.param({"percentage_of_nodes_to_score": 0}, id="0 percent"),
        pytest.param({"percentage_of_nodes_to_score": 100}, id="100 percent"),
        pytest.param(
            election(leader_elect=False, lease_duration_s=-1, resource_lock="nonsense"),
            id="leader election is not looked at when it is off",
        ),
        pytest.param(extender(prioritize_verb="", weight=-5), id="an unused weight"),
        pytest.param(
            first(plugin_config=(PluginConfig("Mine", RawArgs({"a": 1})), PluginConfig("Other"))),
            id="arguments of unknown plugins",
        ),
        pytest.param(
            first(plugins=scoring("a.b:Mine"), plugin_config=(PluginConfig("a.b:Mine"),)),
            id="arguments of a plugin from a module, by its name there",
        ),
        pytest.param(
            first(
                plugins=scoring("a.b:DefaultPreemption"),
                plugin_config=(PluginConfig("DefaultPreemption", DefaultPreemptionArgs()),),
            ),
            id="arguments of an in-tree plugin beside one of its name from a module",
        ),
    ],
)
def test_good_configurations_pass(changes):
    assert problems(**changes) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            {"parallelism": 0},
            ["parallelism: Invalid value: 0: should be an integer value greater than zero"],
            id="no parallelism",
        ),
        pytest.param(
            {"client_connection": replace(GOOD.client_connection, burst=-1)},
            ["clientConnection.burst: Invalid value: -1: must be non-negative"],
            id="a negative burst",
        ),
        pytest.param(
            election(resource_name=""),
            ["leaderElection.resourceName: Required value"],
            id="no lock name",
        ),
        pytest.param(
            election(resource_namespace=""),
            ["leaderElection.resourceNamespace: Required value"],
            id="no lock namespace",
        ),
        pytest.param(
            election(resource_lock="configmap"),
            [
                'leaderElection.resourceLock: Invalid value: "configmap": '
                'resourceLock value must be "leases"'
            ],
            id="a lock that is no lease",
        ),
        pytest.param(
            election(resource_lock=""),
            [
                "leaderElection.resourceLock: Required value",
                'leaderElection.resourceLock: Invalid value: "": '
                'resourceLock value must be "leases"',
            ],
            id="no lock kind",
        ),
        pytest.param(
            election(lease_duration_s=0, renew_deadline_s=0, retry_period_s=-1),
            [
                'leaderElection.leaseDuration: Invalid value: "0s": must be greater than zero',
                'leaderElection.renewDeadline: Invalid value: "0s": must be greater than zero',
                'leaderElection.retryPeriod: Invalid value: "-1s": must be greater than zero',
                'leaderElection.leaseDuration: Invalid value: "0s": '
                "must be greater than `RenewDeadline`",
            ],
            id="no time for anything",
        ),
        pytest.param(
            election(lease_duration_s=10),
            [
                'leaderElection.leaseDuration: Invalid value: "15s": '
                "must be greater than `RenewDeadline`"
            ],
            id="a lease shorter than its renewal, quoting the renewal",
        ),
        pytest.param(
            {"percentage_of_nodes_to_score": 101},
            ["percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]"],
            id="more than all nodes",
        ),
        pytest.param(
            {"percentage_of_nodes_to_score": -1},
            ["percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]"],
            id="fewer than no nodes",
        ),
        pytest.param(
            {"pod_initial_backoff_seconds": 0},
            ["podInitialBackoffSeconds: Invalid value: 0: must be greater than 0"],
            id="no backoff",
        ),
        pytest.param(
            {"pod_initial_backoff_seconds": 5, "pod_max_backoff_seconds": 4},
            [
                "podMaxBackoffSeconds: Invalid value: 4: "
                "must be greater than or equal to PodInitialBackoffSeconds"
            ],
            id="a maximum below the start",
        ),
        pytest.param({"profiles": ()}, ["profiles: Required value"], id="no profile"),
        pytest.param(
            first(plugins=scoring("a.b:Mine"), plugin_config=(PluginConfig("Mine"),)),
            [
                'profiles[0].pluginConfig[0].name: Invalid value: "Mine": has no effect: the '
                'plugin is enabled as "a.b:Mine"'
            ],
            id="arguments without the module of their plugin",
        ),
        pytest.param(
            first(plugins=scoring("Mine"), plugin_config=(PluginConfig("a.b:Mine"),)),
            [
                'profiles[0].pluginConfig[0].name: Invalid value: "a.b:Mine": has no effect: the '
                'plugin is enabled as "Mine"'
            ],
            id="arguments for a module of a plugin that is enabled by name",
        ),
        pytest.param(
            second(scheduler_name=""),
            ["profiles[1].schedulerName: Required value"],
            id="a profile without name",
        ),
        pytest.param(
            first(scheduler_name="other"),
            ["profiles[1].schedulerName: Duplicate value: {}"],
            id="two profiles of one name",
        ),
        pytest.param(
            second(percentage_of_nodes_to_score=101),
            [
                "profiles[1].percentageOfNodesToScore: Invalid value: 101: "
                "not in valid range [0-100]"
            ],
            id="a profile with more than all nodes",
        ),
        pytest.param(
            second(percentage_of_nodes_to_score=-1),
            ["profiles[1].percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]"],
            id="a profile with fewer than no nodes",
        ),
        pytest.param(
            second(plugins=Plugins(queue_sort=PluginSet(enabled=(Plugin("AnotherSort"),)))),
            [
                "profiles[1].plugins.queueSort: Invalid value: "
                '{"Enabled":[{"Name":"AnotherSort","Weight":0}],"Disabled":null}: '
                "must be the same for all profiles"
            ],
            id="two ways to sort the queue",
        ),
        pytest.param(
            first(plugins=None),
            [
                "profiles[1].plugins.queueSort: Invalid value: "
                '{"Enabled":[{"Name":"CustomSort","Weight":0}],"Disabled":null}: '
                "must be the same for all profiles"
            ],
            id="one way said and one left out",
        ),
        pytest.param(
            {
                "profiles": (
                    replace(
                        FIRST,
                        plugins=Plugins(
                            queue_sort=PluginSet(enabled=(Plugin("A"), Plugin("B"))),
                        ),
                    ),
                )
            },
            [
                "profiles[0].plugins.queueSort.Enabled: Invalid value: 2: "
                "only one queue sort plugin can be enabled"
            ],
            id="two sorters in one profile",
        ),
        pytest.param(
            {
                "profiles": (
                    replace(FIRST, plugin_config=(PluginConfig("CustomSort", RawArgs({"a": 1})),)),
                    replace(SECOND, plugin_config=(PluginConfig("CustomSort", RawArgs({"a": 2})),)),
                )
            },
            [
                'profiles[1].pluginConfig.args: Invalid value: {"a":2}: '
                "queueSort must be the same for all profiles"
            ],
            id="one sorter with two arguments",
        ),
        pytest.param(
            extender(weight=-1),
            ["extenders[0].weight: Invalid value: -1: must have a positive weight applied to it"],
            id="an extender that counts negatively",
        ),
        pytest.param(
            extender(managed_resources=(ExtenderManagedResource("example.com/foo"),) * 2),
            [
                'extenders[0].managedResources[1].name: Invalid value: "example.com/foo": '
                "duplicate extender managed resource name"
            ],
            id="a resource managed twice",
        ),
        pytest.param(
            extender(managed_resources=(ExtenderManagedResource("cpu"),)),
            [
                'extenders[0].managedResources[0].name: Invalid value: "cpu": '
                "is an invalid extended resource name"
            ],
            id="a resource that is not extended",
        ),
        pytest.param(
            extender(managed_resources=(ExtenderManagedResource("requests.example.com/foo"),)),
            [
                "extenders[0].managedResources[0].name: Invalid value: "
                '"requests.example.com/foo": is an invalid extended resource name'
            ],
            id="a resource named like a quota",
        ),
        pytest.param(
            {"extenders": (Extender(bind_verb="foo"), Extender(bind_verb="bar"))},
            [
                'extenders: Invalid value: "found 2 extenders implementing bind": '
                "only one extender can implement bind"
            ],
            id="two extenders that bind",
        ),
        pytest.param(
            first(
                plugin_config=(
                    PluginConfig(
                        "DefaultPreemption",
                        DefaultPreemptionArgs(min_candidate_nodes_percentage=200),
                    ),
                )
            ),
            [
                "profiles[0].pluginConfig[0].args.minCandidateNodesPercentage: "
                "Invalid value: 200: not in valid range [0, 100]"
            ],
            id="an argument out of range",
        ),
        pytest.param(
            first(plugin_config=(PluginConfig("DefaultPreemption", InterPodAffinityArgs()),)),
            [
                "profiles[0].pluginConfig[0].args: Invalid value: "
                '{"hardPodAffinityWeight":1,"ignorePreferredTermsOfExistingPods":false}: '
                "has to match plugin args"
            ],
            id="another plugin's arguments",
        ),
        pytest.param(
            first(plugin_config=(PluginConfig("config"), PluginConfig("config"))),
            ['profiles[0].pluginConfig[1]: Duplicate value: "config"'],
            id="arguments given twice",
        ),
    ],
)
def test_bad_configurations_fail_with_path_and_text(changes, expected):
    assert problems(**changes) == expected


@pytest.mark.parametrize(
    "name", ["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"], ids=lambda name: name
)
def test_a_removed_plugin_is_named_as_such(name):
    (problem,) = problems(**first(plugins=scoring(name)))
    assert problem == (
        f'profiles[0].plugins.score.enabled[0]: Invalid value: "{name}": {VERSION_1}; it was '
        "removed in Kubernetes 1.32; use NodeVolumeLimits, which counts CSI volumes"
    )
    (problem,) = problems(**first(plugin_config=(PluginConfig(name),)))
    assert problem.startswith(f'profiles[0].pluginConfig[0]: Invalid value: "{name}": {VERSION_1}')


def test_multi_point_is_not_searched_for_removed_plugins():
    lists = replace(FIRST.plugins, multi_point=PluginSet(enabled=(Plugin("EBSLimits"),)))
    assert problems(**first(plugins=lists)) == []


def test_every_problem_is_reported():
    result = problems(
        parallelism=-1,
        percentage_of_nodes_to_score=101,
        profiles=(replace(FIRST, scheduler_name=""), replace(SECOND, scheduler_name="")),
        extenders=(Extender(prioritize_verb="p"),),
    )
    assert [problem.split(":")[0] for problem in result] == [
        "parallelism",
        "profiles[0].schedulerName",
        "profiles[1].schedulerName",
        "profiles[1].schedulerName",
        "percentageOfNodesToScore",
        "extenders[0].weight",
    ]


# -- what only fails at the start -----------------------------------------------------------------


def start_problems(**changes) -> list[str]:
    return [str(problem) for problem in validate_start(replace(GOOD, **changes), DEFAULT_GATES)]


def test_a_good_configuration_starts():
    assert start_problems() == []


def test_renewal_needs_more_than_a_retry():
    assert start_problems(**election(renew_deadline_s=6.0, retry_period_s=5.0)) == [
        'leaderElection.renewDeadline: Invalid value: "6s": '
        "renewDeadline must be greater than retryPeriod*JitterFactor (5s * 1.2)"
    ]
    assert start_problems(**election(renew_deadline_s=6.1, retry_period_s=5.0)) == []


def test_an_extender_cannot_be_both_unchecked_and_checked():
    tls = ExtenderTLSConfig(insecure=True, ca_file="ca.crt")
    (problem,) = start_problems(**extender(tls_config=tls))
    assert problem.startswith("extenders[0].tlsConfig.insecure: Invalid value: true: specifying")


def test_ignored_resources_need_a_plugin_to_ignore_them():
    managed = (ExtenderManagedResource("example.com/a", ignored_by_scheduler=True),)
    assert start_problems(**extender(managed_resources=managed)) == [
        "profiles[0].pluginConfig: can't find NodeResourcesFitArgs in plugin config",
        "profiles[1].pluginConfig: can't find NodeResourcesFitArgs in plugin config",
    ]
