"""Log lines: klog's text and JSON forms, verbosity, modules named by --vmodule, and that no value
can forge a line.
"""

import io
import json
import logging
import re

import pytest

from kubesched.api.core_v1 import Pod
from kubesched.api.meta import ObjectMeta
from kubesched.base import logs
from kubesched.base.logs import Format, LogSettings, ObjectRef, PatternLevel, parse_vmodule, quoted

HEADER = re.compile(r"([IWE])\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ (\w+\.py):(\d+)\] (.*)", re.S)


@pytest.fixture(autouse=True)
def _restored():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logs.configure(LogSettings(), errors=io.StringIO())
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def written(make, **settings):
    stream = io.StringIO()
    logs.configure(LogSettings(**settings), errors=stream)
    make(logs.get_logger("kubesched.some.module"))
    return stream.getvalue()


def body(text):
    match = HEADER.fullmatch(text.removesuffix("\n"))
    assert match, text
    return match[4]


def test_a_text_line_has_klogs_header_and_names_this_file():
    line = written(lambda log: log.info("hello"))
    match = HEADER.fullmatch(line.rstrip("\n"))
    assert match
    assert match[1] == "I"
    assert match[2] == "test_logs.py"
    assert match[4] == '"hello"'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("a b", 'k="a b"', id="text is quoted"),
        pytest.param(3, "k=3", id="a number is bare"),
        pytest.param(True, "k=true", id="a boolean is Go's"),
        pytest.param(None, "k=null", id="nothing is null"),
        pytest.param(ObjectRef("a", "ns"), 'k="ns/a"', id="an object is namespace and name"),
        pytest.param(ObjectRef("n1"), 'k="n1"', id="an object of the cluster has no namespace"),
        pytest.param(["x", 1], 'k=["x",1]', id="a list is JSON"),
        pytest.param({"b", "a"}, 'k=["a","b"]', id="a set is sorted"),
        pytest.param(
            {"a": ObjectRef("p", "ns")}, 'k={"a":{"name":"p","namespace":"ns"}}', id="map"
        ),
        pytest.param(ValueError("bad"), 'k="bad"', id="an error is its text"),
        pytest.param(ValueError(), 'k="ValueError"', id="an error without text is its type"),
        pytest.param("a\nb", "k=<\n\ta\n\tb\n >", id="several lines are indented"),
        pytest.param("a\n", "k=<\n\ta\n >", id="a final line break adds no line"),
    ],
)
def test_values_are_written_as_klog_writes_them(value, text):
    assert body(written(lambda log: log.info("m", k=value))) == f'"m" {text}'


def test_an_object_with_metadata_is_named_by_it():
    pod = Pod(metadata=ObjectMeta(name="a", namespace="ns"))
    assert body(written(lambda log: log.info("m", pod=pod))) == '"m" pod="ns/a"'


@pytest.mark.parametrize(
    "text", ['quo"te', "back\\slash", "new\nline", "\x1b[31mred", "tab\t", "\u2028", "\U000e0001"]
)
def test_quoted_text_stays_on_one_line_and_reads_back(text):
    line = quoted(text)
    assert line.isprintable()
    if "\\x" not in line and "\\U" not in line:
        assert json.loads(line) == text


def test_an_error_comes_first_under_err():
    line = written(lambda log: log.error("failed", ValueError("why"), pod="x"))
    assert line.startswith("E")
    assert body(line) == '"failed" err="why" pod="x"'


def test_an_exception_says_where_it_came_from():
    def make(log):
        try:
            raise KeyError("lost")
        except KeyError:
            log.exception("broke", pod="x")

    lines = written(make).splitlines()
    assert lines[0].endswith("""\"broke" err="'lost'" pod="x\"""")
    assert lines[1] == "Traceback (most recent call last):"


def test_plain_logging_joins_without_quotes():
    line = written(lambda _log: logging.getLogger("aiohttp").warning("100%% of %s", "x"))
    assert line.startswith("W")
    assert body(line) == "100% of x"


def test_a_message_with_percent_signs_is_left_alone():
    assert body(written(lambda log: log.info("100% done"))) == '"100% done"'


def test_a_json_line_has_component_bases_keys():
    line = json.loads(
        written(
            lambda log: log.info("hi", v=2, pod=ObjectRef("a", "ns"), n=1),
            format=Format.JSON,
            verbosity=2,
        )
    )
    assert line.pop("ts") > 1_600_000_000_000
    assert re.fullmatch(r"base/test_logs\.py:\d+", line.pop("caller"))
    assert line == {"msg": "hi", "v": 2, "pod": {"name": "a", "namespace": "ns"}, "n": 1}


def test_a_json_error_has_no_verbosity():
    line = json.loads(written(lambda log: log.error("bad", "why"), format=Format.JSON))
    assert "v" not in line
    assert line["err"] == "why"


@pytest.mark.parametrize(
    ("verbosity", "v", "shown"),
    [
        pytest.param(0, 0, True, id="plain lines are always shown"),
        pytest.param(0, 1, False, id="nothing more by default"),
        pytest.param(4, 4, True, id="up to the level asked for"),
        pytest.param(4, 5, False, id="not beyond"),
        pytest.param(30, 25, True, id="any level can be asked for"),
    ],
)
def test_verbosity_is_a_threshold(verbosity, v, shown):
    assert bool(written(lambda log: log.info("m", v=v), verbosity=verbosity)) is shown


def test_values_of_a_line_that_is_switched_off_are_not_looked_at():
    class Unprintable:
        def __str__(self):
            raise AssertionError("asked for its text")

    assert written(lambda log: log.info("m", v=1, k=Unprintable())) == ""


def test_vmodule_raises_single_modules():
    stream = io.StringIO()
    logs.configure(LogSettings(vmodule=(PatternLevel("bind*", 4),)), errors=stream)
    logs.get_logger("kubesched.scheduler.binding_cycle_of_test").info("yes", v=4)
    logs.get_logger("kubesched.scheduler.failure_of_test").info("no", v=4)
    assert body(stream.getvalue()) == '"yes"'


def test_vmodule_with_a_folder_speaks_of_the_whole_path():
    assert PatternLevel("kubesched/scheduler/queue/*", 1).matches("kubesched.scheduler.queue.heap")
    assert not PatternLevel("kubesched/scheduler/queue/*", 1).matches(
        "kubesched.scheduler.cache.cache"
    )
    assert PatternLevel("heap.py", 1).matches("kubesched.scheduler.queue.heap")


def test_vmodule_is_read_as_klog_reads_it():
    assert parse_vmodule("a=1,b*=2,c=0,") == (PatternLevel("a", 1), PatternLevel("b*", 2))


@pytest.mark.parametrize("text", ["a", "a=", "=1", "a=x", "a=-1"])
def test_a_bad_vmodule_is_refused(text):
    with pytest.raises(ValueError, match=r"syntax error|negative value"):
        parse_vmodule(text)


def test_split_streams_keep_errors_apart():
    out, errors = io.StringIO(), io.StringIO()
    logs.configure(LogSettings(split_stream=True), out=out, errors=errors)
    log = logs.get_logger("kubesched.x")
    log.info("fine")
    log.error("bad")
    assert body(out.getvalue()) == '"fine"'
    assert body(errors.getvalue()) == '"bad"'


def test_a_reader_that_went_away_does_not_hurt():
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    logs.configure(LogSettings(), errors=Closed())
    logs.get_logger("kubesched.x").info("not written")


def test_verbosity_can_be_changed_while_running():
    stream = io.StringIO()
    logs.configure(LogSettings(), errors=stream)
    log = logs.get_logger("kubesched.x")
    log.info("not yet", v=3)
    logs.set_verbosity(3)
    log.info("now", v=3)
    assert logs.verbosity() == 3
    assert body(stream.getvalue()) == '"now"'


def test_what_is_enabled_follows_the_verbosity_up_and_down():
    logs.configure(LogSettings(), errors=io.StringIO())
    log = logs.get_logger("kubesched.followed")
    for verbosity in (0, 3, 5, 2, 0):
        logs.set_verbosity(verbosity)
        for v in (*range(7), *range(7)):  # asked again, the answer is a kept one
            assert log.enabled(v) is logging.getLogger("kubesched.followed").isEnabledFor(20 - v)
            assert log.enabled(v) is (v <= verbosity)
