"""What plugins cost: time and rows per extension point, and whether their answers are kept.

Times come from the attempts that `plugin_execution_duration_seconds` samples. Reading is safe from
another thread, also while a plugin blocks the scheduling loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kubesched.api.meta import Record
from kubesched.framework.rules import Rule, Scope
from kubesched.scheduler.classes import ClassEngine
from kubesched.scheduler.factory import Assembly

HEADER = ("PLUGIN", "POINT", "CALLS", "EACH", "ROWS EACH", "ANSWERS")
_PHASES = {"PreFilter": 0, "Filter": 0, "PreScore": 1, "Score": 1}
"""Extension points with answers to keep: of the filters, or of the scores."""
_ANY = ""
"""For the reason that answers of all plugins have."""


class PluginCost(Record):
    """One plugin at one extension point, in all profiles."""

    plugin: str
    point: str
    calls: int = 0
    """In the sampled attempts."""
    seconds: float = 0.0
    rows: int = 0
    """Rows asked about; those that in-tree plugins renew one at a time are not counted."""
    answers: str = ""
    """For how many shapes of pods they are kept, and why not for others."""

    def cells(self) -> tuple[str, ...]:
        each = f"{self.seconds * 1e6 / self.calls:.1f} µs" if self.calls else "-"
        rows = f"{self.rows / self.calls:.0f}" if self.rows else "-"
        return self.plugin, self.point, f"{self.calls:,}", each, rows, self.answers or "-"


class Blocked(Record):
    """A plugin that blocked the scheduling loop, as the watchdog found."""

    plugin: str
    point: str
    seconds: float

    def __str__(self) -> str:
        where = f" in {self.point}" if self.point else ""
        return f"{self.plugin} blocked the scheduling loop{where} for {self.seconds:.1f} s"


class PluginProfile(Record):
    """The page /debug/plugins."""

    plugins: tuple[PluginCost, ...] = ()
    blocked: tuple[Blocked, ...] = ()


def plugin_costs(assembly: Assembly) -> tuple[PluginCost, ...]:
    """The costs of all plugins, the most expensive first."""
    engine = assembly.scheduler.cycle.algorithm.engine
    kept = [Counter[tuple[str, str]](), Counter[tuple[str, str]]()]
    shapes = 0 if engine is None else _count(engine, kept)
    timed: dict[tuple[str, str], list[float]] = {}
    rows = Counter[tuple[str, str]]()
    for framework in assembly.frameworks.values():
        for point in _PHASES:
            for plugin in framework.at(point[0].lower() + point[1:]):
                timed[plugin.name, point] = [0, 0.0]
        if framework.timer is not None:
            rows.update(dict(framework.timer.rows))
    durations = assembly.scheduler.metrics.plugin_execution_duration_seconds
    for (name, point, _code), cell in durations.cells().items():
        cost = timed.setdefault((name, point), [0, 0.0])
        cost[0] += cell.count
        cost[1] += cell.sum
    costs = [
        PluginCost(
            plugin=name,
            point=point,
            calls=int(calls),
            seconds=seconds,
            rows=rows[name, point],
            answers=_answers(kept[_PHASES[point]], name, engine, shapes)
            if point in _PHASES
            else "",
        )
        for (name, point), (calls, seconds) in timed.items()
    ]
    return tuple(sorted(costs, key=lambda cost: -cost.seconds))


def _count(engine: ClassEngine, kept: Sequence[Counter[tuple[str, str]]]) -> int:
    """Count plugins and why their answers are not kept, "" for kept; returns the shapes."""
    shapes = engine.classes.all_answers()
    for answers in shapes:
        if answers.is_given_up:
            for counter in kept:
                counter[_ANY, "a rule raised an exception, see the log"] += 1
        filters, scores = answers.filters, answers.scores
        asked = [
            None if filters is None else (*filters.asked, *filters.asked_pre_filters),
            None if scores is None else (*scores.asked, *scores.asked_pre_scores),
        ]
        for plugins, counter, rules in zip(asked, kept, engine.newest_rules, strict=True):
            names = {plugin.name for plugin in plugins or ()}
            for name, rule in rules.items() if plugins is not None else ():
                counter[name, _why_not(rule) if name in names else ""] += 1
    return len(shapes)


def _why_not(rule: Rule | None) -> str:
    if rule is None:
        return "no rule"
    if rule.premise is None:
        return "the rule is for one attempt"
    is_cluster = rule.depends_on is Scope.CLUSTER
    return f"the rule {'depends on the whole cluster' if is_cluster else 'differs by pod'}"


def _answers(
    reasons: Counter[tuple[str, str]], plugin: str, engine: ClassEngine | None, shapes: int
) -> str:
    if engine is None:
        return "not kept: classes are off"
    found = {why: count for (name, why), count in reasons.items() if name in (plugin, _ANY)}
    kept = found.pop("", 0)
    texts = [f"kept for {kept} of {shapes} shapes"] if kept else []
    texts += [f"not kept for {count}: {why}" for why, count in found.items()]
    return "; ".join(texts) or "none yet"


def as_text(profile: PluginProfile) -> str:
    """Both as tables."""
    rows = [HEADER, *(cost.cells() for cost in profile.plugins)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADER))]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, *map(str, profile.blocked), ""])
