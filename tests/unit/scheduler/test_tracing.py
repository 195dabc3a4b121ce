"""The tracing file is checked as kube-apiserver checks it, and nothing is imported while tracing is off."""

import subprocess
import sys

import pytest

from kubesched.base.clock import ManualClock
from kubesched.base.errors import ConfigError
from kubesched.scheduler.tracing import DEFAULT_ENDPOINT, TracingConfiguration, load_tracing, traced

HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"


def written(folder, text):
    path = folder / "tracing.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_a_file_says_where_spans_go_and_how_many(tmp_path, version):
    text = HEAD.replace("/v1", f"/{version}")
    text += "endpoint: collector:4317\nsamplingRatePerMillion: 100\n"
    assert load_tracing(written(tmp_path, text)) == TracingConfiguration("collector:4317", 100)


def test_both_fields_have_defaults(tmp_path):
    assert load_tracing(written(tmp_path, HEAD)) == TracingConfiguration(DEFAULT_ENDPOINT, 0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- 1\n", "must be a TracingConfiguration"),
        ("kind: TracingConfiguration\n", 'no kind "TracingConfiguration" is registered'),
        (f"{HEAD}ratio: 1\n", "ratio: unknown field"),
        (f"{HEAD}samplingRatePerMillion: many\n", "samplingRatePerMillion: must be a number"),
        (f"{HEAD}samplingRatePerMillion: true\n", "samplingRatePerMillion: must be a number"),
        (
            f"{HEAD}samplingRatePerMillion: -1\n",
            "Invalid value: -1: sampling rate must be positive",
        ),
        (f"{HEAD}samplingRatePerMillion: 1000001\n", "less than or equal to one million"),
        (f"{HEAD}endpoint: 4\n", "endpoint: must be a string"),
        (f"{HEAD}endpoint: http://x\n", "unsupported scheme: http."),
        ("{", "flow node"),
    ],
)
def test_a_wrong_file_is_refused_with_the_field(tmp_path, text, problem):
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=problem.replace("(", r"\(")) as refused:
        load_tracing(path)
    assert path in str(refused.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="failed to read tracing config: No such file"):
        load_tracing(str(tmp_path / "none.yaml"))


def test_without_a_sample_there_is_no_tracing(tmp_path):
    with traced("", ManualClock(), "me") as tracing:
        assert tracing is None
    with traced(written(tmp_path, HEAD), ManualClock(), "me") as tracing:
        assert tracing is None


def test_the_extra_is_named_where_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    path = written(tmp_path, f"{HEAD}samplingRatePerMillion: 1\n")
    with (
        pytest.raises(ConfigError, match=r"pip install 'kubesched\[tracing\]'"),
        traced(path, ManualClock(), "me"),
    ):
        pass


def test_opentelemetry_is_not_imported_while_tracing_is_off():
    code = "import sys, kubesched.app.run; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
