"""Parts of the process: registry flags, election settings, stop requests, how errors are told."""

import asyncio
import os
import signal
from collections import Counter
from random import Random

import pytest

from kubesched.app import run as run_module
from kubesched.app import stopping
from kubesched.app.flags import RunOptions
from kubesched.app.process_metrics import (
    make_registry,
    register_common,
    register_event_losses,
    register_tasks,
)
from kubesched.app.replica import election_settings, new_identity
from kubesched.app.stopping import ExitLimit, StopRequest
from kubesched.base.errors import ConfigError, FieldProblem, without_groups
from kubesched.base.metrics import MetricsRegistry
from kubesched.client.metrics import LeaderMetrics
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.references import REFERENCES
from kubesched.config.types import LeaderElectionConfiguration
from kubesched.config.versions import Versions


def test_the_identity_is_host_and_a_fresh_uuid():
    first, second = new_identity(Random(1)), new_identity(Random(2))
    host, _, uuid = first.rpartition("_")
    assert host == os.uname().nodename
    assert len(uuid) == 36
    assert first != second


def test_election_settings_come_from_the_configuration():
    config = LeaderElectionConfiguration(lease_duration_s=30, resource_name="mine")
    settings = election_settings(config, "me")
    assert (settings.lease_duration_s, settings.name, settings.identity) == (30, "mine", "me")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"resource_lock": "endpoints"}, "couldn't create resource lock"),
        (
            {"lease_duration_s": 5.0},
            "couldn't create leader elector: leaseDuration must be greater",
        ),
        ({"retry_period_s": 9.0}, "couldn't create leader elector: renewDeadline must be greater"),
    ],
)
def test_settings_no_elector_can_work_with_are_refused(config, message):
    with pytest.raises(ConfigError, match=message):
        election_settings(LeaderElectionConfiguration(**config), "me")


def test_metrics_flags_shape_the_registry(tmp_path):
    manifest = tmp_path / "allow.yaml"
    manifest.write_text('allowListMapping:\n  "a_total,x": "1,2"\n  "b_total,x": "1"\n')
    registry = make_registry(
        RunOptions(
            disabled_metrics=("c_total",),
            allow_metric_labels_manifest=str(manifest),
            allow_metric_labels=(("b_total,x", "7"),),
        )
    )
    for name in ("a_total", "b_total", "c_total"):
        family = registry.counter(name, "Help.", labels=("x",))
        for value in ("1", "7"):
            family.labels(value).inc()
    page = registry.text()
    assert 'a_total{x="1"} 1' in page
    assert 'a_total{x="unexpected"} 1' in page
    assert 'b_total{x="7"} 1' in page  # the flag wins over the file
    assert "c_total" not in page


@pytest.mark.parametrize(
    "options",
    [{"allow_metric_labels": (("metric", "v"),)}, {"allow_metric_labels_manifest": "broken"}],
    ids=["not metric,label", "not a mapping"],
)
def test_an_allow_list_that_cannot_be_understood_is_refused(options, tmp_path):
    if "allow_metric_labels_manifest" in options:
        path = tmp_path / "m"
        path.write_text("allowListMapping: [1]")
        options = {"allow_metric_labels_manifest": str(path)}
    with pytest.raises(ConfigError):
        make_registry(RunOptions(**options))


def test_the_process_tells_about_itself():
    registry = MetricsRegistry()
    register_common(registry, DEFAULT_GATES)
    page = registry.text()
    assert 'git_version="v1.37.0"' in page
    assert 'minor="37"' in page
    assert (
        'version_info{binary="1.37.0",component="kube",emulation="1.37",min_compat="1.36"} 1'
        in page
    )
    assert 'kubernetes_feature_enabled{name="NodeDeclaredFeatures",stage=""} 1' in page
    assert 'kubernetes_feature_enabled{name="CompositePodGroup",stage="ALPHA"} 0' in page
    assert "process_resident_memory_bytes" in page


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        (Versions(emulated="1.36"), ("1.37.0", "1.36", "1.35", 217)),
        (Versions(min_compatibility="1.37"), ("1.37.0", "1.37", "1.37", 253)),
        (Versions(REFERENCES["1.36"]), ("1.36.4", "1.36", "1.35", 241)),
    ],
)
def test_the_process_tells_which_version_it_emulates(versions, told):
    registry = MetricsRegistry()
    register_common(registry, FeatureGates(versions=versions))
    page = registry.text()
    release, emulated, oldest, series = told
    assert (
        f'version_info{{binary="{release}",component="kube",emulation="{emulated}",'
        f'min_compat="{oldest}"}} 1' in page
    )
    assert page.count("\nkubernetes_feature_enabled{") == series


def test_who_leads_is_told():
    registry = MetricsRegistry()
    metrics = LeaderMetrics(registry)
    metrics.leader_off("lock")
    assert 'leader_election_master_status{name="lock"} 0' in registry.text()
    metrics.leader_on("lock")
    metrics.slowpath_exercised("lock")
    assert 'leader_election_master_status{name="lock"} 1' in registry.text()
    assert 'leader_election_slowpath_total{name="lock"} 1' in registry.text()


def test_lost_events_are_counted_by_reason():
    registry = MetricsRegistry()
    losses = Counter({"queue full": 3})
    register_event_losses(registry, losses)
    assert 'kubesched_events_dropped_total{reason="queue full"} 3' in registry.text()
    assert 'kubesched_events_dropped_total{reason="shut down"} 0' in registry.text()


async def test_a_signal_asks_to_stop():
    stop = StopRequest()
    stop.install()
    try:
        assert not stop.is_set
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stop.wait(), 10)
        assert stop.is_set
    finally:
        stop.uninstall()


async def test_what_is_to_happen_at_once_happens_before_the_request_is_logged(caplog):
    logged = []
    stop = StopRequest()
    stop.on_asked = lambda: logged.append("Asked to stop" in caplog.text)
    stop.install()
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stop.wait(), 10)
    finally:
        stop.uninstall()
    assert logged == [False]


async def test_a_second_signal_ends_the_process(monkeypatch):
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    stop = StopRequest()
    stop.install()
    try:
        stop.ask()
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        stop.uninstall()
    assert ended == [1]


@pytest.mark.parametrize("reason", ["stop", "lease"])
async def test_a_process_that_does_not_end_by_itself_is_ended(monkeypatch, reason):
    class Ended(Exception):
        pass

    def end(code):
        assert code == 1
        raise Ended

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(stopping, "EXIT_S", 0.01)
    stop = StopRequest()
    limit = ExitLimit(stop, drain_s=0.01)
    ending = asyncio.ensure_future(limit.enforce())
    await asyncio.sleep(0)
    assert not ending.done()
    if reason == "stop":
        stop.ask()
    else:
        limit.leadership_lost()
    with pytest.raises(Ended):
        await ending


def test_errors_are_taken_out_of_their_groups():
    inner = ConfigError([FieldProblem("", "wrong")])
    wrapped = ExceptionGroup("a", [ExceptionGroup("b", [inner])])
    assert without_groups(wrapped) is inner
    several = ExceptionGroup("c", [inner, ValueError()])
    assert without_groups(several) is several


def test_several_problems_are_listed():
    error = ConfigError([FieldProblem("a", "x"), FieldProblem("b", "y")], source="file")
    assert run_module._text(error) == "file: [a: x, b: y]"
    assert run_module._text(ValueError()) == "ValueError"


async def test_the_page_tells_how_many_tasks_there_are():
    registry = MetricsRegistry()
    register_tasks(registry, asyncio.get_running_loop())
    release = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        before = len(asyncio.all_tasks())
        for _ in range(3):
            group.create_task(release.wait())
        # From another thread: pages are served beside the scheduling loop.
        page = await asyncio.to_thread(registry.text)
        release.set()
    assert f"kubesched_tasks {before + 3}\n" in page
