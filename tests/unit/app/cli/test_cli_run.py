"""`kubesched run` up to the point where it would talk to a cluster: usage, versions, exit codes,
first errors.
"""

import io
import logging

import pytest

from kubesched.app.cli.main import main
from kubesched.base import logs


@pytest.fixture(autouse=True)
def _restored_logging():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logs.configure(logs.LogSettings(), errors=io.StringIO())
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def test_a_bad_flag_prints_the_usage_and_then_the_error_on_stderr(capsys):
    assert main(["run", "--nope"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("usage: kubesched run [flags]")
    assert err.endswith("\nError: unknown flag: --nope\n")


def test_a_word_that_is_no_flag_prints_only_the_error(capsys):
    assert main(["run", "foo"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", 'Error: "kubesched run" does not take any arguments, got ["foo"]\n')


def test_help_goes_to_stdout_and_names_every_group(capsys):
    assert main(["run", "--help"]) == 0
    out = capsys.readouterr().out
    for group in ("Secure serving", "Authentication", "Leader election", "Logs", "Deprecated"):
        assert f"{group} flags:" in out


@pytest.mark.parametrize("flag", ["--version", "--version=raw", "--version=true"])
def test_version_begins_as_kube_schedulers(capsys, flag):
    assert main(["run", flag]) == 0
    assert capsys.readouterr().out.startswith("Kubernetes v1.37.0 ")


def test_version_is_that_of_the_reference(capsys):
    assert main(["run", "--version", "--reference-version=1.36"]) == 0
    assert capsys.readouterr().out.startswith("Kubernetes v1.36.4 ")


def test_a_misspelt_flag_gets_a_suggestion(capsys):
    assert main(["run", "--kubecnfig=x"]) == 1
    suggested = 'Error: unknown flag: --kubecnfig; did you mean "--kubeconfig"?\n'
    assert capsys.readouterr().err.endswith(suggested)


def test_an_unknown_gate_is_a_failed_command(capsys):
    assert main(["run", "--feature-gates=Nope=true"]) == 1
    assert (
        '] "command failed" err="--feature-gates: unrecognized feature gate: Nope"'
        in capsys.readouterr().err
    )


def test_a_bad_log_format_is_told_without_a_log_line(capsys):
    assert main(["run", "--logging-format=xml"]) == 1
    assert capsys.readouterr().err == 'format: Invalid value: "xml": Unsupported log format\n'


def test_a_start_without_any_credentials_says_so(capsys, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["run", "--secure-port=0"]) == 1
    assert "no configuration has been provided" in capsys.readouterr().err


def test_timings_no_elector_accepts_are_refused(capsys):
    words = ["--leader-elect-lease-duration=5s", "--master=http://127.0.0.1:1", "--secure-port=0"]
    assert main(["run", *words]) == 1
    assert (
        "couldn't create leader elector: leaseDuration must be greater than renewDeadline"
        in capsys.readouterr().err
    )


def test_another_lock_than_a_lease_is_refused(capsys):
    words = ["--leader-elect-resource-lock=endpoints", "--master=http://127.0.0.1:1"]
    assert main(["run", *words]) == 1
    assert "couldn't create resource lock" in capsys.readouterr().err


def test_flags_are_logged_when_asked(capsys, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    main(["run", "-v=1", "--secure-port=0"])
    assert '] FLAG: --secure-port="0"' in capsys.readouterr().err


def test_setting_a_gate_whose_feature_is_settled_is_warned_of(capsys):
    """X7"""
    gates = "--feature-gates=DRAPrioritizedList=false,KMSv1=true,SchedulerAsyncAPICalls=true"
    assert main(["run", "--emulated-version=1.36", gates, "--secure-port=70000"]) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if "Warning: setting" in line]
    assert [line.partition("] ")[2] for line in lines] == [
        '"Warning: setting GA feature gate. It will be removed in a future release." '
        'featureGate="DRAPrioritizedList" value=false',
        '"Warning: setting deprecated feature gate. It will be removed in a future release." '
        'featureGate="KMSv1" value=true',
    ]
