"""Proves that settings without effect are pointed out, and that sensible ones are not."""

from __future__ import annotations

import pytest

from kubesched.config import default_plugins
from kubesched.config.load import check
from kubesched.config.types import ExtensionPoint

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def able(name: str, point: ExtensionPoint) -> bool | None:
    if name == "Mine":
        return point in (ExtensionPoint.BIND, ExtensionPoint.FILTER)
    return default_plugins.implements(name, point)


def warnings(profile: str) -> list[str]:
    data = f"{HEADER}profiles: [{{{profile}}}]\n".encode()
    return [str(warning) for warning in check(data, implements=able).warnings]


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        pytest.param(
            "plugins: {score: {disabled: [{name: ImageLocalty}]}}",
            [
                'profiles[0].plugins.score.disabled[0].name: disabling "ImageLocalty" has no '
                'effect: it is not enabled anywhere (did you mean "ImageLocality"?) (line 3, '
                "column 49)"
            ],
            id="a misspelt name in a disabled list",
        ),
        pytest.param(
            "plugins: {multiPoint: {disabled: [{name: SelectorSpread}]}}",
            [
                'profiles[0].plugins.multiPoint.disabled[0].name: disabling "SelectorSpread" has '
                "no effect: it is not enabled anywhere (it was removed in Kubernetes 1.29; use "
                "PodTopologySpread with its System default constraints) (line 3, column 54)"
            ],
            id="a plugin of the past in a disabled list",
        ),
        pytest.param(
            "plugins: {filter: {enabled: [{name: Mine, weight: 3}]}}",
            [
                "profiles[0].plugins.filter.enabled[0].weight: has no effect: only scores are "
                "weighted (line 3, column 63)"
            ],
            id="a weight on a filter",
        ),
        pytest.param(
            "pluginConfig: [{name: Mine, args: {a: 1}}]",
            [
                'profiles[0].pluginConfig[0].name: arguments for "Mine" have no effect: it runs '
                "at no extension point (line 3, column 35)"
            ],
            id="arguments for a plugin that does not run",
        ),
        pytest.param(
            "plugins: {bind: {enabled: [{name: Mine}]}}",
            [
                "profiles[0].plugins.bind: Mine will never bind a pod: DefaultBinder comes first "
                "and binds every pod; disable it (line 3, column 23)"
            ],
            id="a binder behind the default one",
        ),
    ],
)
def test_what_has_no_effect_is_pointed_out(profile, expected):
    assert warnings(profile) == expected


@pytest.mark.parametrize(
    "profile",
    [
        pytest.param("", id="the defaults"),
        pytest.param("plugins: {score: {disabled: [{name: ImageLocality}]}}", id="a real name"),
        pytest.param("plugins: {score: {disabled: [{name: '*'}]}}", id="a star"),
        pytest.param(
            "plugins: {multiPoint: {enabled: [{name: Mine, weight: 3}], disabled: [{name: "
            "DefaultBinder}]}}, pluginConfig: [{name: Mine}]",
            id="a binder instead of the default one",
        ),
    ],
)
def test_sensible_profiles_are_not_commented_on(profile):
    assert warnings(profile) == []
