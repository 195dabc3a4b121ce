"""Dashboard and alerts: every query asks for metrics and labels that the metrics page has, in the
way their type allows.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from kubesched.api.core_v1 import Pod
from kubesched.app.process_metrics import (
    register_common,
    register_event_losses,
    register_informers,
)
from kubesched.base.clock import ManualClock
from kubesched.base.metrics import MetricsRegistry, SchedulerMetrics
from kubesched.client.informers.factory import BLIND_AFTER_S, InformerFactory
from kubesched.client.metrics import ClientMetrics, LeaderMetrics
from kubesched.config.features import DEFAULT_GATES
from kubesched.framework.status import Code
from kubesched.scheduler.watchdog import LoopWatchdog

ROOT = Path(__file__).parents[3]
DASHBOARD = ROOT / "deploy" / "helm" / "kubesched" / "dashboard.json"
RULES = ROOT / "deploy" / "manifests" / "prometheusrule.yaml"
RUNBOOK = ROOT / "docs" / "how-to" / "alerts.md"

TARGET_LABELS = {"job", "instance", "namespace", "pod"}
"""Added by the scraper."""
SELECTOR = re.compile(r"\b([a-z_]+)\{([^}]*)\}(\[)?")
BY = re.compile(r"\bby \(([^)]*)\)")
RATE = re.compile(r"\b(rate|increase)\(([a-z_]+)\{")
WORDS = {"sum", "max", "by", "rate", "increase", "absent", "and", "topk", "histogram_quantile"}


@pytest.fixture(scope="module")
def families():
    """Every metric of a process: name -> family."""

    async def register():
        registry, clock = MetricsRegistry(), ManualClock()
        of_trimaran = "kubesched_nodes_without_load_metrics"
        SchedulerMetrics(registry).gauge(of_trimaran, "", labels=("profile", "plugin"))
        ClientMetrics(registry, clock)
        LeaderMetrics(registry)
        register_common(registry, DEFAULT_GATES)
        register_event_losses(registry, Counter())
        informers = InformerFactory(None, clock=clock, random=random.Random(1))
        informers.informer(Pod)
        register_informers(registry, informers)
        LoopWatchdog(asyncio.get_running_loop(), registry, clock)
        return {family.name: family for family in registry.families()}

    return asyncio.run(register())


def dashboard_queries():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [
        pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")
        for panel in panels
        for target in panel["targets"]
    ]


def alerts():
    document = yaml.safe_load(RULES.read_text())
    return [rule for group in document["spec"]["groups"] for rule in group["rules"]]


def problems(query, families):
    """What is wrong with a query; only the PromQL used here is understood."""
    found = []
    labels_seen = set()
    for name, matchers, _range in SELECTOR.findall(query):
        if name == "up":
            labels_seen |= TARGET_LABELS
            continue
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        family = families.get(name) or families.get(base)
        if family is None or (name != family.name) != (family.type == "histogram"):
            found.append(f"no metric {name}")
            continue
        known = {*family.label_names, *TARGET_LABELS}
        if name.endswith("_bucket"):
            known.add("le")
        labels_seen |= known
        used = {re.split(r"[=!~]", m.strip())[0] for m in matchers.split(",") if m.strip()}
        found += [f"{name} has no label {label}" for label in sorted(used - known)]
        if "job" not in used:
            found.append(f"{name} is not limited to a job")
    for group in BY.findall(query):
        asked = {label.strip() for label in group.split(",")}
        found += [f"no label {label}" for label in sorted(asked - labels_seen)]
    rated = {name for _function, name in RATE.findall(query)}
    for name, _matchers, _range in SELECTOR.findall(query):
        family = families.get(name)
        is_counter = name != "up" and (family is None or family.type == "counter")
        if is_counter != (name in rated):
            found.append(f"{name}: rate() belongs to counters, and only to them")
    if query.count("(") != query.count(")") or query.count("{") != query.count("}"):
        found.append("brackets do not match")
    plain = re.sub(r'\{[^}]*\}|"[^"]*"|\[[^\]]*\]|by \([^)]*\)', " ", query)
    unknown = set(re.findall(r"\b[a-z_]+\b", plain)) - WORDS
    found += [
        f"{name} has no selector"
        for name in sorted(unknown - {n for n, *_ in SELECTOR.findall(query)})
    ]
    return found


@pytest.mark.parametrize("query", dashboard_queries())
def test_panels_ask_for_what_there_is(query, families):
    assert problems(query, families) == []


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_alerts_ask_for_what_there_is_and_have_a_runbook(rule, families):
    assert problems(rule["expr"], families) == []
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert ROOT / page == RUNBOOK
    assert anchor == rule["alert"].lower()
    assert f"\n## {rule['alert']}\n" in RUNBOOK.read_text()
    assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_every_runbook_belongs_to_an_alert():
    headings = re.findall(r"^## (\w+)$", RUNBOOK.read_text(), re.M)
    assert headings == [rule["alert"] for rule in alerts()]


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ('rate(scheduler_nonsense_total{job="x"}[5m])', "no metric scheduler_nonsense_total"),
        ('scheduler_pending_pods{job="x",name="y"}', "scheduler_pending_pods has no label name"),
        ("scheduler_pending_pods{}", "scheduler_pending_pods is not limited to a job"),
        ('sum by (le) (scheduler_pending_pods{job="x"})', "no label le"),
        (
            'scheduler_schedule_attempts_total{job="x"}',
            "scheduler_schedule_attempts_total: rate() belongs to counters, and only to them",
        ),
        (
            'rate(scheduler_pending_pods{job="x"}[5m])',
            "scheduler_pending_pods: rate() belongs to counters, and only to them",
        ),
        (
            'rate(scheduler_scheduling_attempt_duration_seconds{job="x"}[5m])',
            "no metric scheduler_scheduling_attempt_duration_seconds",
        ),
        ("sum(scheduler_pending_pods)", "scheduler_pending_pods has no selector"),
    ],
)
def test_the_check_finds_broken_queries(query, problem, families):
    assert problem in problems(query, families)


def test_values_in_alerts_are_the_ones_metrics_have():
    text = RULES.read_text()
    assert f'status="{Code.ERROR.upstream_name}"' in text
    assert f"> {BLIND_AFTER_S:.0f}\n" in text


def test_the_dashboard_is_in_the_chart(chart):
    (config_map,) = chart(dashboard={"enabled": True})["dashboard.yaml"]
    assert json.loads(config_map["data"]["kubesched.json"]) == json.loads(DASHBOARD.read_text())
    ids = [panel["id"] for panel in json.loads(DASHBOARD.read_text())["panels"]]
    assert len(set(ids)) == len(ids)


def test_alerts_of_a_release_look_at_its_own_job(chart):
    (rule,) = chart(name="second", prometheusRule={"enabled": True})["prometheusrule.yaml"]
    expressions = [rule["expr"] for rule in rule["spec"]["groups"][0]["rules"]]
    assert all('job="second"' in expression for expression in expressions)
    assert not any('job="kubesched"' in expression for expression in expressions)
