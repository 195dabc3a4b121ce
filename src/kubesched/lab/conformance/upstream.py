"""What a kube-scheduler has that our reference does not: the work list for a new release.

Facts are read from a checkout of Kubernetes with regular expressions, where the Go source has had
one layout for many releases, or from what a binary prints (`--help`, `--write-config-to`). Our own
facts come from the code that uses them: the table of feature gates, the default profile, the
configuration records, the metrics registry; of event reasons and status texts, from our source.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from kubesched.base.errors import KubeschedError
from kubesched.base.metrics import MetricsRegistry, exponential_buckets
from kubesched.base.metrics.scheduler import MetricGates, SchedulerMetrics
from kubesched.config.default_plugins import IN_TREE_PLUGINS, default_plugins
from kubesched.config.feature_table import effective, histories
from kubesched.config.features import ALL_ALPHA, ALL_BETA, FeatureGates, Stage
from kubesched.config.plugin_args import ARGS_BY_PLUGIN
from kubesched.config.schema import json_fields
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.config.versions import Versions, number

GATE, PLUGIN, PROFILE, FLAG, FIELD = "gate", "plugin", "default plugin", "flag", "field"
METRIC, EVENT, TEXT = "metric", "event", "text"

_STAGING: Final = "staging/src/k8s.io"
GATE_FILES: Final = (
    "pkg/features/kube_features.go",
    f"{_STAGING}/apiserver/pkg/features/kube_features.go",
    f"{_STAGING}/apiextensions-apiserver/pkg/features/kube_features.go",
    f"{_STAGING}/client-go/features/known_features.go",
    f"{_STAGING}/component-base/logs/api/v1/kube_features.go",
    f"{_STAGING}/component-base/metrics/features/kube_features.go",
    f"{_STAGING}/component-base/zpages/features/kube_features.go",
)
FLAG_FILES: Final = (
    "cmd/kube-scheduler/app/options/options.go",
    "cmd/kube-scheduler/app/options/deprecated.go",
    f"{_STAGING}/apiserver/pkg/server/options/authentication.go",
    f"{_STAGING}/apiserver/pkg/server/options/authorization.go",
    f"{_STAGING}/apiserver/pkg/server/options/serving.go",
    f"{_STAGING}/component-base/compatibility/registry.go",
    f"{_STAGING}/component-base/config/options/leaderelectionconfig.go",
    f"{_STAGING}/component-base/logs/api/v1/options.go",
    f"{_STAGING}/component-base/metrics/options.go",
)
FIELD_FILES: Final = (
    f"{_STAGING}/kube-scheduler/config/v1/types.go",
    f"{_STAGING}/kube-scheduler/config/v1/types_pluginargs.go",
)
METRIC_FILES: Final = (
    "pkg/scheduler/metrics/metrics.go",
    "pkg/scheduler/framework/plugins/volumebinding/metrics/metrics.go",
    f"{_STAGING}/dynamic-resource-allocation/resourceclaim/metrics/metrics.go",
)
PROFILE_FILE: Final = "pkg/scheduler/apis/config/v1/default_plugins.go"
NAMES_FILE: Final = "pkg/scheduler/framework/plugins/names/names.go"
SCHEDULER: Final = "pkg/scheduler"

GONE: Final = "gone"
"""The detail of something that only we have."""
_ADDED_BY_GATES: Final = ("NodeDeclaredFeatures", "DynamicResources")
"""In the profile that a binary writes, but not in the list of the source."""


class Fact(NamedTuple):
    """Something a kube-scheduler has; `detail` is compared as well."""

    kind: str
    name: str
    detail: str = ""


class Finding(NamedTuple):
    """A fact that we do not have, or have otherwise."""

    fact: Fact
    ours: str | None
    """Our detail; None if we have no such thing."""


class UpstreamError(KubeschedError):
    """Neither a checkout of Kubernetes nor a kube-scheduler."""


def facts(path: Path, versions: Versions) -> list[Fact]:
    """The facts of a checkout or a binary.

    Raises:
        UpstreamError: it is neither.
    """
    found = list(_of_binary(path) if path.is_file() else _of_source(path, versions))
    if not found:
        raise UpstreamError(f"{path}: neither a checkout of Kubernetes nor a kube-scheduler")
    return found


def findings(upstream: Iterable[Fact], own: Mapping[tuple[str, str], str]) -> list[Finding]:
    """What we do not have, have otherwise, or have although it is gone.

    An upstream fact without detail is only looked up.
    """
    text = _own_source()
    upstream = list(upstream)
    found = []
    for fact in upstream:
        if fact.kind in (EVENT, TEXT):
            ours = fact.detail if fact.name in text else None
        else:
            ours = own.get((fact.kind, fact.name))
        if ours is None or (fact.detail and ours != fact.detail):
            found.append(Finding(fact, ours))
    names = {(fact.kind, fact.name) for fact in upstream}
    read = {fact.kind for fact in upstream} & {GATE, METRIC}
    for (kind, name), ours in own.items():
        if kind in read and (kind, name) not in names:
            found.append(Finding(Fact(kind, name, GONE), ours))
    return found


# -- a checkout ------------------------------------------------------------------------------------


def _of_source(root: Path, versions: Versions) -> Iterator[Fact]:
    yield from _source_gates(root, versions)
    for name in re.findall(r'^\t\w+ += "(\w+)"', _read(root, NAMES_FILE), re.MULTILINE):
        yield Fact(PLUGIN, name)
    profile = _read(root, PROFILE_FILE).partition("\nfunc applyFeatureGates")[0]
    listed = re.findall(r"\{Name: names\.(\w+)(?:, Weight: [^(]+\((\d+)\))?\}", profile)
    yield from _profile([(name, int(weight or 0)) for name, weight in listed])
    for path in FLAG_FILES:
        for flag in re.findall(r'\.\w+VarP?\([^"\n]*"([a-z0-9-]+)"', _read(root, path)):
            yield Fact(FLAG, flag)
    for path in FIELD_FILES:
        yield from _source_fields(_read(root, path))
    for path in METRIC_FILES:
        yield from _source_metrics(_read(root, path))
    files = (
        file.read_text(encoding="utf-8")
        for file in sorted((root / SCHEDULER).rglob("*.go"))
        if not file.name.endswith("_test.go") and "testing" not in file.parts
    )
    yield from _source_texts(re.sub(r"//[^\n]*", "", "\n".join(files)))


def _read(root: Path, path: str) -> str:
    file = root / path
    return file.read_text(encoding="utf-8") if file.is_file() else ""


_CONSTANT = re.compile(r'^\s*(\w+)(?:\s+(?:featuregate\.)?Feature)?\s*=\s*"(\w+)"', re.MULTILINE)
_HISTORY = re.compile(
    r"^\t+(?:\w+\.)?(\w+): *\{\n((?:\t+\{Version.*\n)+)\t+\}", re.MULTILINE | re.ASCII
)
_NEEDS = re.compile(r"^\t(?:\w+\.)?(\w+): *\{([^{}:]*)\},", re.MULTILINE)
_STAGES: Final = {"Alpha": "alpha", "Beta": "beta", "GA": "GA", "Deprecated": "deprecated"}


def _source_gates(root: Path, versions: Versions) -> Iterator[Fact]:
    texts = [re.sub(r"\n?\t*//[^\n]*", "", _read(root, path)) for path in GATE_FILES]
    names = {constant: name for text in texts for constant, name in _CONSTANT.findall(text)}
    needs: dict[str, set[str]] = {}
    found: dict[str, list[str]] = {}
    for text in texts:
        for constant, body in _HISTORY.findall(text):
            rows = [line for line in body.splitlines() if line.strip()]
            found[names.get(constant, constant)] = _history(map(_entry, rows), versions)
        for constant, body in _NEEDS.findall(text):
            words = {word.rpartition(".")[2] for word in re.findall(r"[\w.]+", body)}
            needed = {names.get(word, word) for word in words - {"Feature"}}
            needs.setdefault(names.get(constant, constant), set()).update(needed)
    for name, history in found.items():
        yield Fact(GATE, name, _gate(history, needs.get(name, ())))


def _entry(row: str) -> tuple[str, str, str]:
    """Version, oldest neighbour, and the rest as in `feature_gates.txt`."""

    def parsed(name: str) -> str:
        match = re.search(rf'\b{name}: +(?:\w+\.)*MustParse\("([\d.]+)"\)', row)
        return match[1] if match else ""

    stage = re.search(r"PreRelease: +(?:\w+\.)?(\w+)", row)
    word = _STAGES[stage[1]] if stage else "?"
    sign = "+" if re.search(r"\bDefault: +true", row) else "-"
    lock = "!" if re.search(r"LockToDefault: +true", row) else ""
    return parsed("Version"), parsed("MinCompatibilityVersion"), f"{word}{sign}{lock}"


def _history(entries: Iterable[tuple[str, str, str]], versions: Versions) -> list[str]:
    """The entries that a version to be emulated can see."""
    seen: list[str] = []
    for version, oldest, what in entries:
        if number(version) <= number(versions.floor):
            seen.clear()
        seen.append(f"{version}{'/' + oldest if oldest else ''} {what}")
    return seen


def _gate(history: Iterable[str], needs: Iterable[str]) -> str:
    return " ".join([*history, *(["needs", *sorted(needs)] if needs else [])])


def _profile(plugins: Iterable[tuple[str, int]]) -> Iterator[Fact]:
    before = "nothing"
    for name, weight in plugins:
        if name not in _ADDED_BY_GATES:
            yield Fact(PROFILE, name, f"weight {weight}, after {before}")
            before = name


def _source_fields(text: str) -> Iterator[Fact]:
    for struct, body in re.findall(r"^type (\w+) struct \{\n(.*?)^\}", text, re.M | re.DOTALL):
        for name in re.findall(r'`json:"(\w+)', body):
            yield Fact(FIELD, f"{struct}.{name}")


_METRIC = re.compile(
    r"metrics\.New(Counter|Gauge|Histogram)(?:Vec)?\(\s*&metrics\.\w+\{(.*?)\n\t+\}"
    r"(?:, *\n?\t*\[\]string\{(.*?)\})?",
    re.DOTALL,
)


def _source_metrics(text: str) -> Iterator[Fact]:
    constants = {
        name: value
        for name, value in re.findall(r'(\w+) *= *"([^"]*)"', text)
        if name.endswith(("Subsystem", "subsystem", "Label", "label"))
    }
    for kind, body, labels in _METRIC.findall(text):
        options = dict(re.findall(r"(\w+): +(.*?),?$", body, re.MULTILINE))
        system = options.get("Subsystem", '""')
        system = constants.get(system, "scheduler") if '"' not in system else system.strip('"')
        name = "_".join(part for part in (system, options["Name"].strip('"')) if part)
        numbers = re.findall(r"[\d.]+", options.get("Buckets", "").partition("(")[2])
        bounds: tuple[float, ...] = ()
        if len(numbers) == 3:
            bounds = exponential_buckets(float(numbers[0]), float(numbers[1]), int(numbers[2]))
        words = [constants.get(word, word.strip('"')) for word in re.findall(r'[\w"]+', labels)]
        stage = options.get("StabilityLevel", "").rpartition(".")[2]
        if "DeprecatedVersion" in options:
            stage = "hidden"
        yield Fact(METRIC, name, _metric(kind.lower(), stage, words, bounds))


def _metric(kind: str, stage: str, labels: Iterable[str], bounds: Iterable[float]) -> str:
    shown = ",".join(f"{bound:.6g}" for bound in bounds)
    return f"{kind} {stage} labels [{' '.join(labels)}] buckets [{shown}]"


def _source_texts(text: str) -> Iterator[Fact]:
    for reason in re.findall(r'\.Eventf\([^"\n]*"(\w+)"', text):
        yield Fact(EVENT, reason)
    for name, reason in re.findall(r'\b([Ee]rrReason\w*) *= *"([^"]+)"', text):
        if len(re.findall(rf"\b{name}\b", text)) > 1:  # some are declared and never used
            yield Fact(TEXT, reason)


# -- a binary --------------------------------------------------------------------------------------

_KUBECONFIG: Final = """\
{apiVersion: v1, kind: Config, current-context: a, users: [{name: a, user: {}}],
 clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}],
 contexts: [{name: a, context: {cluster: a, user: a}}]}
"""


def _of_binary(path: Path) -> Iterator[Fact]:
    helped = _output(path, "--help")
    for flag in re.findall(r"^ +(?:-\w, )?--([a-z0-9-]+) ", helped, re.MULTILINE):
        yield Fact(FLAG, flag)
    gates = re.findall(
        r"kube:(\w+)=true\|false \((ALPHA|BETA|DEPRECATED) - default=(true|false)\)", helped
    )
    for name, stage, default in gates:
        yield Fact(GATE, name, f"{stage.lower()}{'+' if default == 'true' else '-'}")
    with tempfile.TemporaryDirectory() as folder:
        written, kubeconfig = Path(folder, "written"), Path(folder, "kubeconfig")
        kubeconfig.write_text(_KUBECONFIG, encoding="utf-8")
        _output(path, f"--kubeconfig={kubeconfig}", f"--write-config-to={written}")
        config: Any = yaml.safe_load(written.read_text()) if written.is_file() else {}
    for profile in config.get("profiles", ())[:1]:
        listed = profile["plugins"].get("multiPoint", {}).get("enabled", ())
        yield from _profile([(plugin["name"], plugin.get("weight", 0)) for plugin in listed])
        yield from (Fact(FIELD, f"Plugins.{point}") for point in profile["plugins"])
        for entry in profile.get("pluginConfig", ()):
            fields = entry["args"].keys() - {"apiVersion", "kind"}
            yield from (Fact(FIELD, f"{entry['args']['kind']}.{name}") for name in sorted(fields))


def _output(path: Path, *words: str) -> str:
    call = [str(path), *words, "--secure-port=0"] if words != ("--help",) else [str(path), *words]
    try:
        done = subprocess.run(call, capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        raise UpstreamError(f"{path}: {error.strerror}") from error
    return done.stdout


# -- ours ------------------------------------------------------------------------------------------


def own_facts(
    gates: FeatureGates, flags: Iterable[str], *, of_binary: bool = False
) -> dict[tuple[str, str], str]:
    """What we have, by kind and name; of a binary only the gates' current states are known."""
    listed = list(_own_gates(gates.versions, of_binary=of_binary))
    listed += [Fact(PLUGIN, name) for name in IN_TREE_PLUGINS]
    enabled = default_plugins(gates).multi_point.enabled
    listed += _profile((plugin.name, plugin.weight) for plugin in enabled)
    listed += [Fact(FLAG, name) for name in flags]
    listed += [Fact(FIELD, name) for name in _own_fields(gates)]
    listed += _own_metrics(gates)
    return {(fact.kind, fact.name): fact.detail for fact in listed}


def _own_gates(versions: Versions, *, of_binary: bool) -> Iterator[Fact]:
    for name, gate in effective(versions).items():
        if name in (ALL_ALPHA, ALL_BETA) and not of_binary:
            continue  # built into the mechanism
        if of_binary:
            if gate.stage in (Stage.ALPHA, Stage.BETA):  # --help lists no others
                sign = "+" if gate.default else "-"
                yield Fact(GATE, name, f"{gate.stage.name.lower()}{sign}")
            continue
        steps = (
            (
                entry.version,
                entry.min_compatibility,
                f"{entry.stage.name.lower().replace('ga', 'GA')}"
                f"{'+' if entry.default else '-'}{'!' if entry.locked else ''}",
            )
            for entry in histories()[name].entries
            if number(entry.version) <= number(versions.reference.version)
        )
        yield Fact(GATE, name, _gate(_history(steps, versions), gate.requires))


def _own_fields(gates: FeatureGates) -> Iterator[str]:
    records: list[Any] = [KubeSchedulerConfiguration, *ARGS_BY_PLUGIN.values()]
    seen: set[Any] = set()
    while records:
        record = records.pop()
        if record in seen:
            continue
        seen.add(record)
        for name, hint in json_fields(record).items():
            if name != "podGroupPostFilter" or gates.reference.pod_group_post_filter:
                yield f"{record.__name__}.{name}"
            records += _records(hint)


def _records(hint: Any) -> Iterator[Any]:  # noqa: ANN401 - an annotation
    arguments = getattr(hint, "__args__", ())
    for each in arguments:
        yield from _records(each)
    if not arguments and (
        dataclasses.is_dataclass(hint)
        or (isinstance(hint, type) and issubclass(hint, msgspec.Struct))
    ):
        yield hint


def _own_metrics(gates: FeatureGates) -> Iterator[Fact]:
    registry = MetricsRegistry(shows_hidden=True)
    everything = MetricGates(
        entities=gates.reference.entity_metrics,
        async_api_calls=True,
        generic_workload=True,
        topology_aware_workloads=True,
    )
    SchedulerMetrics(registry, everything)
    for family in registry.families():
        match = re.match(r"\[(\w+)\]( \(Deprecated)?", family.help)
        stage = "" if match is None else "hidden" if match[2] else match[1]
        detail = _metric(family.type, stage, family.label_names, family.bounds)
        yield Fact(METRIC, family.name, detail)


def _own_source() -> str:
    """Our source, with strings that go over several lines put together."""
    root = Path(__file__).parents[2]
    parts = (
        file.read_text(encoding="utf-8")
        for room in ("framework", "plugins", "scheduler")
        for file in (root / room).rglob("*.py")
    )
    return re.sub(r"""["']\s*\n\s*f?["']""", "", "\n".join(parts))
