"""Every alert fires in Prometheus' own rule engine, on the pages our metrics write while its story
happens.

A story moves real instruments minute by minute; the pages become the series of a `promtool test
rules` file. promtool is taken from the path; in CI on Debian it is unpacked from the package, and
otherwise the tests say that it is missing.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from kubesched.api.core_v1 import Pod
from kubesched.app.process_metrics import (
    register_event_losses,
    register_informers,
)
from kubesched.base.clock import ManualClock
from kubesched.base.metrics import MetricsRegistry, SchedulerMetrics
from kubesched.client import events
from kubesched.client.informers.factory import InformerFactory
from kubesched.client.metrics import LeaderMetrics
from kubesched.scheduler.watchdog import LoopWatchdog

RULES = Path(__file__).parents[3] / "deploy" / "manifests" / "prometheusrule.yaml"
MINUTES = 60
DOWNLOAD_TIMEOUT_S = 120
LEASE = "kube-scheduler"
WITHOUT_LOAD = "kubesched_nodes_without_load_metrics"
STALLED = "kubesched_scheduling_loop_stalled_seconds_total"


@dataclass
class Replica:
    """The instruments of one process, moved by hand.

    As made it is healthy: it leads, and pods are placed.
    """

    registry: MetricsRegistry = field(default_factory=MetricsRegistry)
    clock: ManualClock = field(default_factory=ManualClock)
    lost: Counter[str] = field(default_factory=Counter)
    is_up: bool = True
    leads: bool = True
    attempts_a_minute: int = 60
    attempt_s: float = 0.02
    sees_changes: bool = True

    def __post_init__(self):
        self.metrics = SchedulerMetrics(self.registry)
        self.election = LeaderMetrics(self.registry)
        register_event_losses(self.registry, self.lost)
        informers = InformerFactory(None, clock=self.clock, random=random.Random(1))
        self.informer = informers.informer(Pod)
        register_informers(self.registry, informers)
        loop = asyncio.new_event_loop()
        LoopWatchdog(loop, self.registry, self.clock)
        loop.close()
        (self.stalled,) = (f for f in self.registry.families() if f.name == STALLED)
        self.without_load = self.metrics.gauge(WITHOUT_LOAD, "", labels=("profile", "plugin"))
        self.metrics.pending_pods.labels("active").set(1)

    def minute(self):
        (self.election.leader_on if self.leads else self.election.leader_off)(LEASE)
        for _ in range(self.attempts_a_minute):
            self.metrics.schedule_attempts_total.labels("scheduled", "default-scheduler").inc()
            self.metrics.pod_scheduling_sli_duration_seconds.labels("1").observe(self.attempt_s)
        self.clock.advance(60.0)
        if self.sees_changes:
            self.informer.reflector.confirmed_at = self.clock.monotonic()


def healthy(replica: Replica, minute: int) -> None:
    """Nothing happens."""


def down(replica: Replica, minute: int) -> None:
    replica.is_up = minute < 10


def no_leader(replica: Replica, minute: int) -> None:
    replica.leads = minute < 10


def stuck(replica: Replica, minute: int) -> None:
    replica.attempts_a_minute = 60 if minute < 10 else 0


def slow(replica: Replica, minute: int) -> None:
    replica.attempt_s = 0.02 if minute < 10 else 45.0


def plugin_errors(replica: Replica, minute: int) -> None:
    took = replica.metrics.plugin_execution_duration_seconds
    took.labels("Mine", "Filter", "Success" if minute < 10 else "Error").observe(0.001)


def informer_blind(replica: Replica, minute: int) -> None:
    replica.sees_changes = minute < 10


def loop_blocked(replica: Replica, minute: int) -> None:
    replica.stalled.labels("Mine", "Filter").inc(0.0 if minute < 10 else 20.0)


def load_unknown(replica: Replica, minute: int) -> None:
    replica.without_load.labels("default-scheduler", "Mine").set(0 if minute < 10 else 3)


def events_dropped(replica: Replica, minute: int) -> None:
    replica.lost[events.QUEUE_FULL] = max(0, minute - 10) * 5


STORIES = {
    "KubeschedDown": (down, {}),
    "KubeschedNoLeader": (no_leader, {}),
    "KubeschedStuck": (stuck, {}),
    "KubeschedSlow": (slow, {}),
    "KubeschedPluginErrors": (plugin_errors, {"plugin": "Mine", "extension_point": "Filter"}),
    "KubeschedInformerBlind": (informer_blind, {"resource": "pods"}),
    "KubeschedLoopBlocked": (loop_blocked, {"plugin": "Mine", "extension_point": "Filter"}),
    "KubeschedLoadUnknown": (load_unknown, {"profile": "default-scheduler", "plugin": "Mine"}),
    "KubeschedEventsDropped": (events_dropped, {"reason": events.QUEUE_FULL}),
}
"""What happens, and which labels the alert tells of it."""
IMPLIED = {"KubeschedDown": {"KubeschedNoLeader"}}
"""Alerts that have to fire beside the one of the story."""


def series_of(story) -> list[dict[str, str]]:
    """What Prometheus would have scraped, once a minute."""
    replica = Replica()
    rows: dict[str, list[str]] = {}
    for minute in range(MINUTES + 1):
        story(replica, minute)
        replica.minute()
        rows.setdefault('up{job="kubesched"}', ["_"] * minute).append(str(int(replica.is_up)))
        if not replica.is_up:
            continue
        for family in text_string_to_metric_families(replica.registry.text()):
            for sample in family.samples:
                labels = {**sample.labels, "job": "kubesched"}
                inside = ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items())
                row = rows.setdefault(f"{sample.name}{{{inside}}}", [])
                row += ["_"] * (minute - len(row))
                row.append(repr(sample.value))
    return [{"series": name, "values": " ".join(row)} for name, row in rows.items()]


@pytest.fixture(scope="session")
def promtool(tmp_path_factory):
    found = shutil.which("promtool")
    if found is None and os.environ.get("CI") == "true":
        found = unpacked(tmp_path_factory.mktemp("prometheus"))
    if found is None:
        pytest.skip(
            "promtool is not on the path (part of Prometheus; Debian: apt-get install prometheus)"
        )
    return found


def unpacked(folder: Path) -> str | None:
    """promtool out of Debian's package, without installing the service; None where it cannot be
    had.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return None
    folder.chmod(0o777)  # apt downloads as another user

    def run(*command: str) -> bool:
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, timeout=DOWNLOAD_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    download = ("apt-get", "download", "prometheus")
    if not run(*download) and not (run("apt-get", "update") and run(*download)):
        return None
    (package,) = folder.glob("prometheus_*.deb")
    tool = folder / "usr" / "bin" / "promtool"
    return str(tool) if run("dpkg", "-x", package.name, ".") and tool.exists() else None


def rules_file(folder: Path) -> Path:
    """The rules without the object of the Prometheus operator around them."""
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(RULES.read_text())["spec"]))
    return path


def alert_rules() -> dict[str, dict]:
    groups = yaml.safe_load(RULES.read_text())["spec"]["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def expectation(name: str, labels: dict[str, str], at: str) -> dict:
    rule = alert_rules()[name]
    told = {
        "exp_labels": {**rule["labels"], **labels},
        "exp_annotations": rule["annotations"],
    }
    return {"eval_time": at, "alertname": name, "exp_alerts": [told]}


def silence(name: str, at: str) -> dict:
    return {"eval_time": at, "alertname": name, "exp_alerts": []}


def judge(promtool: str, folder: Path, series, expectations) -> subprocess.CompletedProcess:
    document = {
        "rule_files": [str(rules_file(folder))],
        "evaluation_interval": "1m",
        "tests": [
            {"interval": "1m", "input_series": series, "alert_rule_test": expectations},
        ],
    }
    path = folder / "test.yaml"
    path.write_text(yaml.safe_dump(document))
    command = [promtool, "test", "rules", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_every_alert_has_a_story():
    assert set(STORIES) == set(alert_rules())


@pytest.mark.parametrize("name", STORIES)
def test_an_alert_fires_in_its_story_and_no_other_does(name, promtool, tmp_path):
    story, labels = STORIES[name]
    quiet = set(STORIES) - {name} - IMPLIED.get(name, set())
    expectations = [
        silence(name, "9m"),
        expectation(name, labels, f"{MINUTES}m"),
        *(silence(other, f"{MINUTES}m") for other in sorted(quiet)),
    ]
    done = judge(promtool, tmp_path, series_of(story), expectations)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_fires_while_all_is_well(promtool, tmp_path):
    expectations = [silence(name, f"{MINUTES}m") for name in STORIES]
    done = judge(promtool, tmp_path, series_of(healthy), expectations)
    assert done.returncode == 0, done.stdout + done.stderr
    # A check that cannot fail would pass here, too: the same pages must not satisfy a wrong
    # expectation.
    wrong = [expectation("KubeschedDown", {}, f"{MINUTES}m")]
    assert judge(promtool, tmp_path, series_of(healthy), wrong).returncode != 0
