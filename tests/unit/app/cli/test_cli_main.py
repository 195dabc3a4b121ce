"""Proves the shell around the commands: help, dispatch, exit codes, and errors without
tracebacks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import types

import pytest

from kubesched import __version__
from kubesched.app.cli import main as cli
from kubesched.base.errors import ConfigError, FieldProblem, KubeschedError


@pytest.fixture
def command(monkeypatch):
    """A command `probe` that does what the test says."""

    def install(action):
        module = types.ModuleType("kubesched.app.cli.probe")
        module.__spec__ = types.SimpleNamespace()
        module.DESCRIPTION = "Does as it is told."
        module.add_arguments = lambda parser: None
        module.main = action
        monkeypatch.setitem(sys.modules, "kubesched.app.cli.probe", module)
        monkeypatch.setattr(
            cli, "COMMANDS", (*cli.COMMANDS, cli.Command("probe", "Other", "does as it is told"))
        )

    return install


def raising(error):
    def action(args):
        raise error

    return action


@pytest.mark.parametrize(
    "words", [["--help"], ["-h"], ["help"], []], ids=["--help", "-h", "help", "nothing"]
)
def test_help_lists_the_commands_by_group(words, capsys):
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: kubesched")
    assert "Understand:\n  config       show and check scheduler configurations" in out


@pytest.mark.parametrize(
    "words",
    [["config", "--help"], ["help", "config"], ["config", "view", "-h"], ["version", "--help"]],
    ids=" ".join,
)
def test_every_command_has_help(words, capsys):
    assert cli.main(words) == 0
    assert capsys.readouterr().out.startswith("usage: kubesched")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(["nonsense"], 'unknown command "nonsense"', id="an unknown command"),
        pytest.param(["confg"], 'did you mean "config"?', id="a misspelt command"),
        pytest.param(["--nonsense"], "unknown option --nonsense", id="an unknown option"),
        pytest.param(["config"], "required: COMMAND", id="a command without its subcommand"),
        pytest.param(["version", "-o", "xml"], "invalid choice", id="a value that is no choice"),
        pytest.param(
            ["version", "--out", "json"],
            'unknown option --out; did you mean "--output"?',
            id="an abbreviated option",
        ),
    ],
)
def test_wrong_calls_say_so_and_exit_2(words, message, capsys):
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert "--help'" in captured.err
    assert captured.out == ""


def test_the_exit_code_is_the_commands(command):
    command(lambda args: 7)
    assert cli.main(["probe"]) == 7


def test_an_error_of_the_package_is_one_line_and_exits_1(command, capsys):
    command(raising(KubeschedError("pod default/web: no such thing")))
    assert cli.main(["probe"]) == 1
    assert capsys.readouterr().err == "error: pod default/web: no such thing\n"


def test_a_configuration_error_lists_its_problems(command, capsys):
    results = [FieldProblem("a.b", "is wrong", 3, 5), FieldProblem("", "is missing")]
    command(raising(ConfigError(results, source="scheduler.yaml")))
    assert cli.main(["probe"]) == 1
    assert capsys.readouterr().err == (
        "error: 2 problems\n  scheduler.yaml:3:5: a.b: is wrong\n  scheduler.yaml: is missing\n"
    )


def test_an_operating_system_error_names_the_file(command, capsys):
    command(raising(FileNotFoundError(2, "No such file or directory", "/etc/nothing")))
    assert cli.main(["probe"]) == 1
    assert capsys.readouterr().err == "error: /etc/nothing: No such file or directory\n"


def test_a_bug_is_reported_without_traceback(command, capsys):
    command(raising(ZeroDivisionError("division by zero")))
    assert cli.main(["probe"]) == 70
    err = capsys.readouterr().err
    assert err.startswith("error: internal error: ZeroDivisionError: division by zero; ")
    assert "Traceback" not in err


def test_debug_shows_where_an_error_arose(command, capsys):
    command(raising(ZeroDivisionError("division by zero")))
    assert cli.main(["--debug", "probe"]) == 70
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "in action" in err


def test_an_interrupt_exits_130_with_one_word(command, capsys):
    command(raising(KeyboardInterrupt()))
    assert cli.main(["probe"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_an_interrupt_that_python_dressed_up_is_an_interrupt(command, capsys):
    def action(_args):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise RuntimeError("Error calling __set_name__") from error

    command(action)
    assert cli.main(["probe"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


# -- as a process ---------------------------------------------------------------------------------


def run(*words: str, **options) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-m", "kubesched", *words]
    return subprocess.run(call, capture_output=True, text=True, timeout=60, **options)


def test_the_package_can_be_run_as_a_module():
    done = run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"kubesched {__version__} (kube-scheduler v1.37.0")


def test_a_reader_that_leaves_early_is_no_error():
    call = (
        f"{sys.executable} -m kubesched config view -o json | head -c 10; exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", call], capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 141)
    assert done.stderr == ""


def test_output_survives_a_locale_that_cannot_show_it(tmp_path):
    path = tmp_path / "é.yaml"
    path.write_text("apiVersion: v1\nkind: Pödel\n", encoding="utf-8")
    done = run("config", "validate", str(path), env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 1
    assert r"P\xf6del" in done.stdout


def test_help_loads_nothing_heavy():
    probe = (
        "import sys\n"
        "from kubesched.app.cli.main import main\n"
        "main(['--help'])\n"
        "heavy = {'numpy', 'asyncio', 'aiohttp', 'msgspec', 'yaml', 'uvloop', 'ssl'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_viewing_a_configuration_loads_no_plugin_and_no_numpy():
    probe = (
        "import sys\n"
        "from kubesched.app.cli.main import main\n"
        "main(['config', 'view'])\n"
        "heavy = [m for m in sys.modules if m in ('numpy', 'asyncio', 'aiohttp')"
        " or m.startswith('kubesched.plugins')]\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_that_task_groups_have_wrapped_is_told_like_any_other(command, capsys):
    inner = ExceptionGroup("inner", [KubeschedError("no such cluster")])
    command(raising(ExceptionGroup("outer", [inner])))
    assert cli.main(["probe"]) == 1
    assert capsys.readouterr().err == "error: no such cluster\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["run", "--help"], ["completion", "bash"], ["up", "--nodes=1", "--demo"]]
)
def test_a_reader_that_leaves_ends_the_command_quietly(words, tmp_path):
    """As in `kubesched ... | head -1`, with a reader that is gone before the first line is
    written.
    """
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "kubesched", *words],
            stdout=write_end,
            stderr=subprocess.PIPE,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
            timeout=60,
            check=False,
        )
    finally:
        os.close(write_end)
    assert done.returncode == cli.EXIT_BROKEN_PIPE
    assert done.stderr == b""
