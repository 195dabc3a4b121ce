"""Proves that no input makes reading a configuration fail with anything but a ConfigError."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.base.errors import ConfigError
from kubesched.config import default_plugins
from kubesched.config.load import check, default_config
from kubesched.config.output import to_plain, to_yaml

VALID = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 8
leaderElection: {leaderElect: true, leaseDuration: 20s}
profiles:
- schedulerName: a
  plugins:
    multiPoint: &all
      enabled: [{name: NodeName}]
    score:
      enabled:
      - {name: InterPodAffinity, weight: 5}
      disabled: [{name: '*'}]
  pluginConfig:
  - name: NodeResourcesFit
    args:
      ignoredResources: [example.com/a]
      scoringStrategy:
        type: RequestedToCapacityRatio
        requestedToCapacityRatio:
          shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
  - {name: Mine, args: {deep: [1, {a: b}]}}
extenders:
- urlPrefix: http://localhost
  managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]
  tlsConfig: {caData: YQ==}
"""


def outcome(data: bytes) -> str:
    problems = problems_of(data)
    if problems is None:
        return "accepted"
    # YAML knows more line breaks than one; the end of the text counts as a line of its own.
    breaks = sum(data.decode("utf-8", "replace").count(end) for end in "\n\r\x85\u2028\u2029")
    for problem in problems:
        assert problem.message
        assert problem.line is None or 1 <= problem.line <= breaks + 2
    assert problems
    return "refused"


def problems_of(data: bytes):
    """None for a good configuration; anything but a ConfigError is a failure."""
    try:
        check(data, "fuzz", implements=default_plugins.implements)
    except ConfigError as error:
        return error.problems
    return None


KEY = re.compile(r"(?P<indent> *(?:- )?)[A-Za-z]+: ?")


def _insertions():
    """For every line that starts with a key: the file with an unknown key before it."""
    lines = VALID.splitlines()
    for number, line in enumerate(lines):
        match = KEY.match(line)
        if match is None or number < 2:
            continue
        indent = match["indent"]
        rest = " " * len(indent) + line[len(indent) :]
        text = "\n".join([*lines[:number], f"{indent}zzz: 1", rest, *lines[number + 1 :]])
        yield pytest.param(text, number + 1, len(indent) + 1, id=f"before {line.strip()[:30]}")


@pytest.mark.parametrize(("text", "line", "column"), list(_insertions()))
def test_an_unknown_key_is_found_where_it_stands(text, line, column):
    (problem,) = problems_of(text.encode())
    assert problem.path.endswith("zzz")
    assert (problem.line, problem.column) == (line, column)


def test_the_starting_point_is_valid():
    assert outcome(VALID.encode()) == "accepted"


@given(st.binary(max_size=300))
def test_arbitrary_bytes(data):
    outcome(data)


@given(st.text(max_size=200))
def test_arbitrary_text_behind_a_good_header(text):
    outcome((VALID[: VALID.index("parallelism")] + text).encode("utf-8", "surrogatepass"))


# -- arbitrary trees ------------------------------------------------------------------------------

_FIELD_NAMES = st.sampled_from(
    [
        "apiVersion",
        "kind",
        "parallelism",
        "leaderElection",
        "clientConnection",
        "profiles",
        "extenders",
        "schedulerName",
        "plugins",
        "pluginConfig",
        "name",
        "args",
        "weight",
        "enabled",
        "disabled",
        "score",
        "filter",
        "multiPoint",
        "queueSort",
        "bind",
        "shape",
        "utilization",
        "scoringStrategy",
        "resources",
        "type",
        "requestedToCapacityRatio",
        "addedAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
        "matchExpressions",
        "key",
        "operator",
        "values",
        "defaultConstraints",
        "defaultingType",
        "maxSkew",
        "topologyKey",
        "tlsConfig",
        "caData",
        "managedResources",
        "leaseDuration",
        "httpTimeout",
        "filterTimeout",
        "percentageOfNodesToScore",
        "podMaxBackoffSeconds",
    ]
)
_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(
        ["NodeResourcesFit", "NodeAffinity", "PodTopologySpread", "*", "15s", "YQ==", "In", "Gt"]
    ),
)
_TREES = st.recursive(
    _VALUES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(_FIELD_NAMES | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=25,
)
_HEADER = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
}


@given(st.dictionaries(_FIELD_NAMES, _TREES, max_size=6))
def test_arbitrary_trees_of_known_names(tree):
    outcome(to_yaml({**tree, **_HEADER}).encode())
    outcome(json.dumps({**tree, **_HEADER}, ensure_ascii=False).encode())


def _paths(value, path=()):
    """Every place in a tree."""
    yield path
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield from _paths(inner, (*path, key))


def _replaced(value, path, new):
    if not path:
        return new
    head, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[head] = _replaced(value[head], rest, new)
    return copy


def _valid_tree():
    import yaml

    return yaml.safe_load(VALID)


_PLACES = sorted(_paths(_valid_tree()), key=str)


@given(st.sampled_from(_PLACES), _TREES)
def test_a_valid_file_with_anything_in_any_place(place, value):
    outcome(to_yaml(_replaced(_valid_tree(), place, value)).encode())


@given(
    st.integers(0, len(VALID) - 1), st.integers(0, 20), st.text("ab{}[]:-&*!|>'\"#\n 0", max_size=6)
)
def test_a_valid_file_with_any_edit(start, length, inserted):
    outcome((VALID[:start] + inserted + VALID[start + length :]).encode())


@given(st.integers(0, 3000), st.integers(0, 255))
def test_the_default_file_with_any_byte_changed(position, byte):
    data = bytearray(to_yaml(to_plain(default_config())).encode())
    data[position % len(data)] = byte
    outcome(bytes(data))
