"""`scripts/upstream`: what a release has that a reference does not, in the layout of Kubernetes'
source.
"""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

from kubesched.app.flags import all_flags
from kubesched.config.features import DEFAULT_GATES, defaults
from kubesched.config.versions import DEFAULT_VERSIONS

SCRIPT = Path(__file__).parents[3] / "scripts/upstream"
loader = SourceFileLoader("upstream", str(SCRIPT))
upstream = module_from_spec(spec_from_loader("upstream", loader))
loader.exec_module(upstream)

GATES = """
const (
	// owner: nobody
	OpportunisticBatching featuregate.Feature = "OpportunisticBatching"
	StorageCapacityScoring featuregate.Feature = "StorageCapacityScoring"
	DRAFractionalCapacityRange featuregate.Feature = "DRAFractionalCapacityRange"
	DRAConsumableCapacity featuregate.Feature = "DRAConsumableCapacity"
	GitRepoVolumeDriver featuregate.Feature = "GitRepoVolumeDriver"
	Tomorrow featuregate.Feature = "Tomorrow"
)

var specs = map[featuregate.Feature]featuregate.VersionedSpecs{
	OpportunisticBatching: {
		{Version: version.MustParse("1.35"), Default: true, PreRelease: featuregate.Beta},
	},

	genericfeatures.StorageCapacityScoring: {
		{Version: version.MustParse("1.33"), Default: false, PreRelease: featuregate.Alpha},
		{Version: version.MustParse("1.37"), Default: true, PreRelease: featuregate.Beta}, // a remark
	},

	DRAFractionalCapacityRange: {
		{Version: version.MustParse("1.37"), Default: false, PreRelease: featuregate.Beta},
		{Version: version.MustParse("1.37"), Default: true, PreRelease: featuregate.Beta, MinCompatibilityVersion: version.MustParse("1.37")},
	},

	GitRepoVolumeDriver: {
		{Version: version.MustParse("1.0"), Default: true, PreRelease: featuregate.GA},
		{Version: version.MustParse("1.33"), Default: false, PreRelease: featuregate.Deprecated},
		{Version: version.MustParse("1.36"), Default: false, PreRelease: featuregate.Deprecated, LockToDefault: true},
	},

	Tomorrow: {
		{Version: version.MustParse("1.38"), Default: false, PreRelease: featuregate.Alpha},
	},
}

var dependencies = map[featuregate.Feature][]featuregate.Feature{
	OpportunisticBatching: {},
	DRAFractionalCapacityRange: {DRAConsumableCapacity},
	Tomorrow: {genericfeatures.StorageCapacityScoring, OpportunisticBatching},
}
"""  # noqa: E501 # as gofmt leaves it

PROFILE = """
func getDefaultPlugins() *v1.Plugins {
				{Name: names.SchedulingGates},
				{Name: names.PrioritySort},
				{Name: names.NodeName},
				{Name: names.TaintToleration, Weight: ptr.To[int32](4)},
}

func applyFeatureGates(config *v1.Plugins) {
		v1.Plugin{Name: names.NodeDeclaredFeatures}
"""

METRICS = """
const SchedulerSubsystem = "scheduler"
	x = metrics.NewGaugeVec(
		&metrics.GaugeOpts{
			Subsystem:      SchedulerSubsystem,
			Name:           "queued_entities",
			StabilityLevel: metrics.ALPHA,
		}, []string{"queue", "type"})
	y = metrics.NewHistogram(
		&metrics.HistogramOpts{
			Subsystem:      SchedulerSubsystem,
			Name:           "preemption_victims",
			Buckets:        metrics.ExponentialBuckets(1, 2, 8),
			StabilityLevel: metrics.STABLE,
		},
	)
"""

FILES = {
    "pkg/features/kube_features.go": GATES,
    upstream.NAMES_FILE: 'const (\n\tNodeName = "NodeName"\n\tNodeOracle = "NodeOracle"\n)\n',
    upstream.PROFILE_FILE: PROFILE,
    upstream.FLAG_FILES[0]: (
        'fs.StringVar(&o.ConfigFile, "config", o.ConfigFile, "")\nfs.BoolVarP(&o.X, "guess", "g")'
    ),
    upstream.FIELD_FILES[0]: (
        'type Plugins struct {\n\tA PluginSet `json:"podGroupPostFilter"`\n'
        '\tB PluginSet `json:"preGuess,omitempty"`\n}\n'
    ),
    upstream.METRIC_FILES[0]: METRICS,
    "pkg/scheduler/a.go": (
        'r.Eventf(pod, nil, v1.EventTypeNormal, "Scheduled", "Binding", "%v")\n'
        'r.Eventf(pod, nil, v1.EventTypeNormal, "Guessed", "Binding", "%v")\n'
        'const ErrReason = "node(s) were unschedulable"\nuse(ErrReason)\n'
        'const ErrReasonGuess = "node(s) could not be guessed"\nuse(ErrReasonGuess)\n'
        'const ErrReasonUnused = "node(s) had nothing"\n'
    ),
    "pkg/scheduler/a_test.go": (
        'r.Eventf(pod, nil, v1.EventTypeNormal, "Tested", "Binding", "%v")\n'
    ),
}


@pytest.fixture
def checkout(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def found(path, gates):
    facts = upstream.facts(path, gates.versions)
    own = upstream.own_facts(gates, all_flags())
    return {
        (fact.kind, fact.name): (fact.detail, ours)
        for fact, ours in upstream.findings(facts, own)
        if fact.detail != upstream.GONE
    }


NEWER_THAN_137 = {
    ("gate", "Tomorrow"): (
        "1.38 alpha- needs OpportunisticBatching StorageCapacityScoring",
        None,
    ),
    ("plugin", "NodeOracle"): ("", None),
    ("default plugin", "TaintToleration"): (
        "weight 4, after NodeName",
        "weight 3, after NodeUnschedulable",
    ),
    ("flag", "guess"): ("", None),
    ("field", "Plugins.preGuess"): ("", None),
    ("event", "Guessed"): ("", None),
    ("text", "node(s) could not be guessed"): ("", None),
}


def test_only_what_the_reference_does_not_know_is_found(checkout):
    result = found(checkout, DEFAULT_GATES)
    victims = result.pop(("metric", "scheduler_preemption_victims"))
    assert victims == (
        "histogram STABLE labels [] buckets [1,2,4,8,16,32,64,128]",
        "histogram STABLE labels [] buckets [1,2,4,8,16,32,64]",
    )
    assert result == NEWER_THAN_137


def test_an_older_reference_knows_less(checkout):
    result = found(checkout, defaults("1.36"))
    more = {key for key in result if key not in NEWER_THAN_137}
    assert more == {
        ("gate", "DRAFractionalCapacityRange"),
        ("gate", "StorageCapacityScoring"),
        ("default plugin", "NodeName"),
        ("field", "Plugins.podGroupPostFilter"),
        ("metric", "scheduler_queued_entities"),
        ("metric", "scheduler_preemption_victims"),
    }
    assert result["gate", "StorageCapacityScoring"] == ("1.33 alpha- 1.37 beta+", "1.33 alpha-")


def test_what_is_gone_upstream_is_found(checkout):
    gates = defaults("1.36")
    own = upstream.own_facts(gates, all_flags())
    result = upstream.findings(upstream.facts(checkout, gates.versions), own)
    gone = {fact.name for fact, _ in result if fact.detail == upstream.GONE}
    assert {"SidecarContainers", "scheduler_resourceclaim_creates_total"} <= gone
    assert not gone & {"OpportunisticBatching", "AllAlpha", "scheduler_preemption_victims"}


def test_something_else_is_refused(tmp_path):
    with pytest.raises(upstream.UpstreamError, match="no checkout of Kubernetes"):
        upstream.facts(tmp_path, DEFAULT_VERSIONS)


def test_the_script_lists_and_ends_with_1(checkout, capsys):
    assert upstream.main([str(checkout), "1.36"]) == 1
    out = capsys.readouterr().out
    assert "facts are not those of 1.36" in out
    assert "field Plugins.preGuess: new; ours: unknown" in out


def test_the_script_ends_with_0_if_all_is_known(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(upstream, "facts", lambda *_: [upstream.Fact("flag", "config")])
    assert upstream.main([str(tmp_path)]) == 0
    assert "0 of 1 facts" in capsys.readouterr().out
