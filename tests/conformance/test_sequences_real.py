"""Small generated sequences against a real kube-scheduler: control planes start, both decide,
nothing is left.
"""

import os

import pytest

from kubesched.lab.conformance.comparison import Aspect
from kubesched.lab.conformance.run import (
    ConformanceSettings,
    reference_of,
    run,
    stages,
    version_of,
)
from kubesched.testing.control_plane import ASSETS_VARIABLE, find_assets


@pytest.mark.real
@pytest.mark.timeout(300)
async def test_both_schedulers_decide_the_same(tmp_path):
    if not os.environ.get(ASSETS_VARIABLE):
        pytest.skip(f"needs etcd, kube-apiserver and kube-scheduler in ${ASSETS_VARIABLE}")
    settings = ConformanceSettings(find_assets(), tmp_path, sequences=2, pods=25, seed=8)
    reference = reference_of(await version_of(settings.assets))
    async with stages(settings.assets, settings.folder, reference) as on_stage:
        report = await run(settings, on_stage)
    assert report.differences == []
    assert report.sequences_in_agreement == 2
    assert report.decisions.compared > 40
    for aspect in (Aspect.ASKED, Aspect.DEVICES):
        assert report.agreement.by_aspect[aspect].compared > 0


@pytest.mark.real
@pytest.mark.timeout(300)
async def test_both_schedulers_treat_groups_the_same(tmp_path):
    if not os.environ.get(ASSETS_VARIABLE):
        pytest.skip(f"needs etcd, kube-apiserver and kube-scheduler in ${ASSETS_VARIABLE}")
    settings = ConformanceSettings(find_assets(), tmp_path, sequences=1, groups=True)
    reference = reference_of(await version_of(settings.assets))
    if reference == "1.36":
        pytest.skip("groups are those of 1.37")
    async with stages(settings.assets, settings.folder, reference, with_groups=True) as on_stage:
        report = await run(settings, on_stage)
    assert report.differences == []
    assert report.decisions.agreed > 5
    assert report.placed > 0
