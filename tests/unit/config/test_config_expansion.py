"""Proves MultiPoint expansion: order, overrides, weights, and every error of building a profile."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.base.errors import ConfigError, FieldProblem
from kubesched.config import features
from kubesched.config.default_plugins import IN_TREE_PLUGINS, as_of, default_plugins, implements
from kubesched.config.defaults import default_profile, merge_plugins
from kubesched.config.expansion import expand, profile_problems
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.schema import RawArgs
from kubesched.config.types import (
    ExtensionPoint,
    KubeSchedulerProfile,
    Plugin,
    PluginConfig,
    Plugins,
    PluginSet,
)

# Plugins for the tables below: what each implements.
ABILITIES = {
    "Sort": "queueSort",
    "Sort2": "queueSort",
    "Bind": "bind",
    "Bind2": "bind",
    "Filter": "filter",
    "Filter2": "filter",
    "Score": "score",
    "Score2": "score",
    "Both": "filter score",
    "Place": "placementGenerate",
    "Place2": "placementGenerate",
    "Nothing": "",
}


def able(name: str, point: ExtensionPoint) -> bool | None:
    return point.value in ABILITIES[name].split() if name in ABILITIES else None


def plugin_set(text: str) -> PluginSet:
    """`A B(2) -C -*`: enabled with weights, a dash disables."""
    enabled, disabled = [], []
    for word in text.split():
        if word.startswith("-"):
            disabled.append(Plugin(word[1:]))
        else:
            name, _, weight = word.rstrip(")").partition("(")
            enabled.append(Plugin(name, int(weight or 0)))
    return PluginSet(tuple(enabled), tuple(disabled))


def profile(multi_point: str, **points: str) -> KubeSchedulerProfile:
    lists = {name: plugin_set(text) for name, text in points.items()}
    plugins = Plugins(multi_point=plugin_set(multi_point), **lists)
    return KubeSchedulerProfile(scheduler_name="p", plugins=plugins)


def shown(expanded, point: ExtensionPoint) -> str:
    return " ".join(
        f"{p.name}({p.weight})" if p.weight else p.name for p in expanded.weighted(point)
    )


def refused(given: KubeSchedulerProfile, ability=able) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        expand(given, ability)
    return [str(problem) for problem in caught.value.problems]


# -- the defaults ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "plugins"),
    [
        ("preEnqueue", "SchedulingGates DynamicResources DefaultPreemption"),
        ("queueSort", "PrioritySort"),
        (
            "preFilter",
            "NodeName NodeUnschedulable TaintToleration NodeAffinity NodePorts NodeResourcesFit "
            "VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread "
            "InterPodAffinity DynamicResources NodeDeclaredFeatures",
        ),
        (
            "filter",
            "NodeName NodeUnschedulable TaintToleration NodeAffinity NodePorts NodeResourcesFit "
            "VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread "
            "InterPodAffinity DynamicResources NodeDeclaredFeatures",
        ),
        ("postFilter", "DynamicResources DefaultPreemption"),
        (
            "preScore",
            "TaintToleration NodeAffinity NodeResourcesFit VolumeBinding PodTopologySpread "
            "InterPodAffinity NodeResourcesBalancedAllocation",
        ),
        (
            "score",
            "TaintToleration(3) NodeAffinity(2) NodeResourcesFit(1) VolumeBinding(1) "
            "PodTopologySpread(2) InterPodAffinity(2) DynamicResources(2) "
            "NodeResourcesBalancedAllocation(1) ImageLocality(1)",
        ),
        ("reserve", "VolumeBinding DynamicResources"),
        ("permit", ""),
        ("preBind", "VolumeBinding DynamicResources"),
        ("bind", "DefaultBinder"),
        ("postBind", ""),
        ("placementGenerate", ""),
        ("placementScore", "NodeResourcesFit(1)"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value and value else "",
)
def test_the_default_profile_expands_as_upstreams_does(point, plugins):
    given = default_profile(KubeSchedulerProfile(scheduler_name="default"), DEFAULT_GATES)
    assert shown(expand(given, implements), ExtensionPoint(point)) == plugins


def test_pod_group_gates_add_their_points():
    gates = features.parse("GenericWorkload=true,TopologyAwareWorkloadScheduling=true")
    given = default_profile(KubeSchedulerProfile(scheduler_name="default"), gates)
    expanded = expand(given, implements)
    assert shown(expanded, ExtensionPoint.PERMIT) == "GangScheduling"
    assert shown(expanded, ExtensionPoint.PRE_ENQUEUE).endswith(" GangScheduling")
    assert shown(expanded, ExtensionPoint.PLACEMENT_GENERATE) == "TopologyPlacementGenerator"
    assert shown(expanded, ExtensionPoint.PLACEMENT_SCORE) == (
        "NodeResourcesFit(1) PodGroupPodsCount(1)"
    )


# -- order and weights ----------------------------------------------------------------------------

BASE = "Sort Bind"


@pytest.mark.parametrize(
    ("given", "filters", "scores"),
    [
        pytest.param(
            profile(f"{BASE} Both(3) Score"),
            "Both",
            "Both(3) Score(1)",
            id="each plugin runs where it can, with its weight or 1",
        ),
        pytest.param(
            profile(f"{BASE} Filter Both Score", score="-Both"),
            "Filter Both",
            "Score(1)",
            id="a plugin disabled at a point keeps the others",
        ),
        pytest.param(
            profile(f"{BASE} Both Score Score2", score="Score2(4) -*"),
            "Both",
            "Score2(4)",
            id="a star at a point leaves only its own list",
        ),
        pytest.param(
            profile(f"{BASE} Score Both Score2", score="Score2 Both"),
            "Both",
            "Score2(1) Both(1) Score(1)",
            id="plugins named at a point come first, in that order",
        ),
        pytest.param(
            profile(f"{BASE} Score", filter="Filter2"),
            "Filter2",
            "Score(1)",
            id="a plugin that MultiPoint does not name is added",
        ),
        pytest.param(
            profile(f"{BASE} Filter Score", filter="Filter2", score="Score2(2)"),
            "Filter Filter2",
            "Score(1) Score2(2)",
            id="a plugin that MultiPoint does not name goes last",
        ),
        pytest.param(
            profile(f"{BASE} Filter Both", filter="Filter2 Both"),
            "Both Filter Filter2",
            "Both(1)",
            id="override first, then MultiPoint, then the others",
        ),
        pytest.param(
            profile(f"{BASE} Both(3)", score="Both(7)"),
            "Both",
            "Both(7)",
            id="the weight at the point wins",
        ),
        pytest.param(
            profile(f"{BASE} Both(3)", score="Both"),
            "Both",
            "Both(1)",
            id="also when it is not given",
        ),
        pytest.param(
            profile(f"{BASE} Score(-2)"), "", "Score(-2)", id="negative weights are accepted"
        ),
        pytest.param(
            profile(f"{BASE} Nothing"), "", "", id="a plugin that implements nothing is harmless"
        ),
        pytest.param(
            profile(f"{BASE} Both -Both"),
            "Both",
            "Both(1)",
            id="enabled beats disabled within MultiPoint",
        ),
    ],
)
def test_points_are_filled_in_order(given, filters, scores):
    expanded = expand(given, able)
    assert shown(expanded, ExtensionPoint.FILTER) == filters
    assert shown(expanded, ExtensionPoint.SCORE) == scores


def user(**points: str) -> KubeSchedulerProfile:
    """The default profile with a user's lists laid over it."""
    custom = Plugins(**{name: plugin_set(text) for name, text in points.items()})
    merged = merge_plugins(default_plugins(DEFAULT_GATES), custom)
    return KubeSchedulerProfile(scheduler_name="p", plugins=merged)


def mine(name: str, point: ExtensionPoint) -> bool | None:
    if name == "Foo":
        return point in (ExtensionPoint.FILTER, ExtensionPoint.BIND)
    return implements(name, point)


DEFAULTS = expand(user(), implements)


def test_a_filter_of_ones_own_runs_after_the_default_filters():
    filters = expand(user(filter="Foo"), mine).at(ExtensionPoint.FILTER)
    assert filters == (*DEFAULTS.at(ExtensionPoint.FILTER), "Foo")


def test_points_of_a_later_release_do_not_exist_in_an_earlier_one():
    gates = features.defaults("1.36")
    then = as_of(gates.reference, implements)
    expanded = expand(default_profile(KubeSchedulerProfile(scheduler_name="p"), gates), then)
    new = ("NodeName", "NodeUnschedulable", "TaintToleration")
    now = DEFAULTS.at(ExtensionPoint.PRE_FILTER)
    assert now[:3] == new
    assert expanded.at(ExtensionPoint.PRE_FILTER) == now[3:]
    assert set(new) < set(expanded.at(ExtensionPoint.FILTER))
    assert not expanded.at(ExtensionPoint.POD_GROUP_POST_FILTER)
    assert DEFAULTS.at(ExtensionPoint.POD_GROUP_POST_FILTER)
    assert then("Ghost", ExtensionPoint.PRE_FILTER) is None


def test_a_weight_for_one_score_moves_it_to_the_front_and_changes_nothing_else():
    expanded = expand(user(score="InterPodAffinity(5)"), implements)
    assert shown(expanded, ExtensionPoint.SCORE).startswith(
        "InterPodAffinity(5) TaintToleration(3)"
    )
    for point in ExtensionPoint:
        if point is not ExtensionPoint.SCORE:
            assert expanded.at(point) == DEFAULTS.at(point)


def test_disabling_a_score_disables_only_the_score():
    expanded = expand(user(score="-TaintToleration"), implements)
    assert "TaintToleration" not in expanded.at(ExtensionPoint.SCORE)
    assert "TaintToleration" in expanded.at(ExtensionPoint.FILTER)


def test_disabling_all_scores_leaves_the_named_ones():
    expanded = expand(user(score="ImageLocality -*"), implements)
    assert expanded.at(ExtensionPoint.SCORE) == ("ImageLocality",)


def test_disabling_in_multi_point_removes_a_plugin_everywhere():
    expanded = expand(user(multi_point="-NodeAffinity"), implements)
    assert all("NodeAffinity" not in names for names in expanded.by_point.values())


def test_what_is_named_at_a_point_stays_there_although_multi_point_disables_it():
    expanded = expand(user(multi_point="-NodeAffinity", filter="NodeAffinity"), implements)
    points = [point for point, names in expanded.by_point.items() if "NodeAffinity" in names]
    assert points == [ExtensionPoint.FILTER]


def test_a_binder_of_ones_own_runs_after_the_default_binder():
    assert expand(user(bind="Foo"), mine).at(ExtensionPoint.BIND) == ("DefaultBinder", "Foo")
    without = user(bind="Foo -DefaultBinder")
    assert expand(without, mine).at(ExtensionPoint.BIND) == ("Foo",)


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            profile(BASE, score="Ghost"),
            ['plugins.score.enabled[0]: ScorePlugin "Ghost" does not exist'],
            id="a plugin that does not exist",
        ),
        pytest.param(
            profile(f"{BASE} Ghost"),
            ['plugins.multiPoint.enabled[2]: PreFilterPlugin "Ghost" does not exist'],
            id="in MultiPoint it is said of the first point",
        ),
        pytest.param(
            profile(f"{BASE} Ghost", pre_filter="-*"),
            ['plugins.multiPoint.enabled[2]: FilterPlugin "Ghost" does not exist'],
            id="or of the first point that is expanded",
        ),
        pytest.param(
            profile(BASE, score="Filter"),
            ['plugins.score.enabled[0]: plugin "Filter" does not extend ScorePlugin plugin'],
            id="a plugin at a point it does not implement",
        ),
        pytest.param(
            profile(BASE, filter="Filter Filter2 Filter"),
            ['plugins.filter.enabled[2]: plugin "Filter" already registered as "FilterPlugin"'],
            id="a plugin twice at a point",
        ),
        pytest.param(
            profile(f"{BASE} Both Both"),
            ['plugins.multiPoint.enabled[3]: plugin "Both" already registered as "FilterPlugin"'],
            id="a plugin twice in MultiPoint is said once",
        ),
        pytest.param(
            profile("Bind"),
            [
                "plugins.queueSort: only one queue sort plugin required for profile with "
                'scheduler name "p", but got 0'
            ],
            id="no queue sort plugin",
        ),
        pytest.param(
            profile("Sort Bind", queue_sort="Sort2"),
            [
                "plugins.queueSort: only one queue sort plugin required for profile with "
                'scheduler name "p", but got 2'
            ],
            id="two sort the queue",
        ),
        pytest.param(
            profile("Sort"),
            [
                "plugins.bind: at least one bind plugin is needed for profile with scheduler name "
                '"p"'
            ],
            id="no bind plugin",
        ),
        pytest.param(
            profile(f"{BASE} Place Place2"),
            [
                "plugins.placementGenerate: at most one placement generate plugin is allowed for "
                'profile with scheduler name "p"'
            ],
            id="two generate placements",
        ),
        pytest.param(
            profile("", score="Ghost Filter Score Score"),
            [
                'plugins.score.enabled[0]: ScorePlugin "Ghost" does not exist',
                'plugins.score.enabled[1]: plugin "Filter" does not extend ScorePlugin plugin',
                'plugins.score.enabled[3]: plugin "Score" already registered as "ScorePlugin"',
            ],
            id="everything at once, before counting",
        ),
        pytest.param(
            profile(f"{BASE} Score({2**63 // 100 + 1})"),
            ["plugins.score: score plugins: total score of Score plugins could overflow"],
            id="a weight that overflows",
        ),
        pytest.param(
            profile(f"{BASE} Score({2**62 // 100}) Score2({2**62 // 100 + 1})", score="-Score2"),
            ["plugins.score: score plugins: total score of Score plugins could overflow"],
            id="weights that overflow together, even of a disabled plugin",
        ),
    ],
)
def test_profiles_that_cannot_be_built_are_refused(given, expected):
    assert refused(given) == expected


def test_the_largest_total_weight_passes():
    weight = (2**63 - 1) // 100
    expanded = expand(profile(f"{BASE} Score({weight})"), able)
    assert expanded.score_weights == {"Score": weight}


def test_a_star_everywhere_hides_unknown_names_in_multi_point_as_upstream_does():
    closed = {point.attribute: "-*" for point in ExtensionPoint}
    closed |= {"queue_sort": "Sort -*", "bind": "Bind -*"}
    assert expand(profile("Ghost", **closed), able).at(ExtensionPoint.BIND) == ("Bind",)


def test_a_profile_without_plugins_has_nothing_to_run():
    bare = KubeSchedulerProfile(scheduler_name="p")
    assert len(refused(bare)) == 2


def test_repeated_arguments_are_refused():
    given = replace(profile(BASE), plugin_config=(PluginConfig("A"), PluginConfig("A")))
    assert refused(given) == ["pluginConfig[1]: repeated config for plugin A"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        (
            "NodeResourcesLeastAllocated",
            "NodeResourcesFit with scoringStrategy type LeastAllocated",
        ),
        ("NodeResourcesMostAllocated", "NodeResourcesFit with scoringStrategy type MostAllocated"),
        (
            "RequestedToCapacityRatio",
            "NodeResourcesFit with scoringStrategy type RequestedToCapacityRatio",
        ),
        ("SelectorSpread", "PodTopologySpread with its System default constraints"),
        ("NodePreferAvoidPods", "taints with effect PreferNoSchedule (TaintToleration)"),
        ("ServiceAffinity", "InterPodAffinity, or topology spread constraints in the pods"),
        ("NodeLabel", "NodeAffinity with addedAffinity"),
        ("EBSLimits", "NodeVolumeLimits, which counts CSI volumes"),
    ],
)
def test_a_plugin_of_the_past_is_named_with_its_successor(name, hint):
    (problem,) = refused(user(score=name), implements)
    assert f'ScorePlugin "{name}" does not exist; it was removed in Kubernetes 1.' in problem
    assert problem.endswith(f"use {hint}")


def test_a_plugin_that_cannot_be_loaded_is_reported_where_it_is_named():
    def broken(name, point):
        if name == "Ghost":
            raise ConfigError([FieldProblem("", "plugin cannot be loaded: no such module")])
        return able(name, point)

    assert refused(profile(f"{BASE} Ghost", score="Ghost"), broken) == [
        "plugins.score.enabled[0]: plugin cannot be loaded: no such module",
        "plugins.multiPoint.enabled[2]: plugin cannot be loaded: no such module",
    ]


# -- several profiles -----------------------------------------------------------------------------


def together(*profiles: KubeSchedulerProfile) -> list[str]:
    expanded = [expand(item, able) for item in profiles]
    return [problem.message for problem in profile_problems(profiles, expanded)]


def named(name: str, multi_point: str = BASE, **changes) -> KubeSchedulerProfile:
    return replace(profile(multi_point), scheduler_name=name, **changes)


@pytest.mark.parametrize(
    ("profiles", "expected"),
    [
        pytest.param([named("a"), named("b")], [], id="two that agree"),
        pytest.param([named("")], ["scheduler name is needed"], id="no name"),
        pytest.param(
            [named("a"), named("a")],
            ['duplicate profile with scheduler name "a"'],
            id="one name twice",
        ),
        pytest.param(
            [named("a"), named("b", "Sort2 Bind")],
            ['different queue sort plugins for profile "b": "Sort2", first: "Sort"'],
            id="two sorters",
        ),
        pytest.param(
            [
                named("a"),
                named("b", plugin_config=(PluginConfig("Sort", RawArgs({"x": 1})),)),
            ],
            ['different queue sort plugin args for profile "b"'],
            id="one sorter, two arguments",
        ),
    ],
)
def test_profiles_are_checked_together(profiles, expected):
    assert together(*profiles) == expected


def test_a_profile_needs_plugins():
    bare = KubeSchedulerProfile(scheduler_name="a")
    expanded = expand(named("a"), able)
    (problem,) = profile_problems([bare], [expanded])
    assert problem.message == 'plugins required for profile with scheduler name "a"'


# -- properties -----------------------------------------------------------------------------------

_NAMES = st.sampled_from(sorted(IN_TREE_PLUGINS))
_SETS = st.builds(
    PluginSet,
    enabled=st.lists(st.builds(Plugin, _NAMES, st.integers(0, 5)), max_size=3).map(tuple),
    disabled=st.lists(st.builds(Plugin, _NAMES | st.just("*")), max_size=2).map(tuple),
)


@given(
    st.builds(
        Plugins,
        filter=_SETS,
        score=_SETS,
        pre_filter=_SETS,
        multi_point=_SETS,
        bind=_SETS,
        queue_sort=_SETS,
    )
)
def test_whatever_expands_respects_the_rules(custom):
    plugins = merge_plugins(default_plugins(DEFAULT_GATES), custom)
    try:
        expanded = expand(KubeSchedulerProfile(scheduler_name="p", plugins=plugins), implements)
    except ConfigError:
        return
    assert len(expanded.at(ExtensionPoint.QUEUE_SORT)) == 1
    assert expanded.at(ExtensionPoint.BIND)
    for point in ExtensionPoint:
        names = expanded.at(point)
        assert len(set(names)) == len(names)
        assert all(implements(name, point) for name in names)
        explicit = {plugin.name for plugin in plugins.at(point).enabled}
        disabled = {plugin.name for plugin in plugins.at(point).disabled}
        assert explicit <= set(names)
        assert not (set(names) & disabled - explicit)
    assert set(expanded.at(ExtensionPoint.SCORE)) <= set(expanded.score_weights)
