"""The public interface: compile, evaluate, cost, errors."""

import pytest

from kubesched.api.cel import (
    KUBERNETES,
    CompileError,
    CostLimitExceededError,
    DefaultMap,
    Environment,
    EvaluationError,
    InstantiationError,
    compile,
    types,
)

ENVIRONMENT = Environment(
    {
        "self": types.object_type("Widget", {"replicas": types.INT, "name": types.STRING}),
        "oldSelf": types.object_type("Widget", {"replicas": types.INT, "name": types.STRING}),
        "labels": types.map_of(types.STRING, types.map_of(types.STRING, types.ANY)),
    },
    KUBERNETES,
    cost_limit=1000,
)
OLD = {"replicas": 3, "name": "a"}
NEW = {"replicas": 5, "name": "a"}


def test_a_rule_about_two_objects_is_evaluated_with_both():
    program = compile("self.replicas >= oldSelf.replicas && self.name == oldSelf.name", ENVIRONMENT)
    assert program.output_type == types.BOOL
    assert program.evaluate({"self": NEW, "oldSelf": OLD}) is True
    assert program.evaluate({"self": OLD, "oldSelf": NEW}) is False


def test_a_program_can_be_evaluated_any_number_of_times():
    program = compile("[1, 2].map(x, x + self.replicas)", ENVIRONMENT)
    assert [program.evaluate({"self": NEW}) for _ in range(2)] == [[6, 7], [6, 7]]


def test_every_issue_is_listed_with_its_place():
    with pytest.raises(CompileError) as raised:
        compile("self.nosuch == 1 &&\n nosuch", ENVIRONMENT)
    assert str(raised.value) == (
        "ERROR: <input>:1:5: undefined field 'nosuch'\n"
        " | self.nosuch == 1 &&\n"
        " | ....^\n"
        "ERROR: <input>:2:2: undeclared reference to 'nosuch' (in container '')\n"
        " |  nosuch\n"
        " | .^"
    )
    assert [(issue.line, issue.column) for issue in raised.value.issues] == [(1, 4), (2, 1)]


def test_constants_that_cannot_be_converted_fail_when_compiled():
    with pytest.raises(InstantiationError, match="type conversion error from 'string' to 'int'"):
        compile("int('x') == 1", ENVIRONMENT)


def test_errors_are_raised_or_returned():
    program = compile("labels['a'].b == 1", ENVIRONMENT)
    bindings = {"labels": {"a": {}}}
    with pytest.raises(EvaluationError, match=r"^no such key: b$"):
        program.evaluate(bindings)
    outcome = program.run(bindings)
    assert str(outcome.error) == "no such key: b"


def test_a_variable_without_a_value_is_an_error():
    with pytest.raises(EvaluationError, match=r"^no such attribute\(s\): self$"):
        compile("self.replicas == 1", ENVIRONMENT).evaluate({})


def test_every_key_of_a_map_with_a_default_can_be_looked_up_but_only_real_ones_are_there():
    bindings = {"labels": DefaultMap({"a": {"b": 1}}, {})}

    def value(expression):
        return compile(expression, ENVIRONMENT).evaluate(bindings)

    assert value("labels['none'] == {} && labels.none == {}")
    assert value("has(labels.none) && !has(labels.none.b)")
    assert value("labels[?'none'].hasValue() && !labels[?'none'].?b.hasValue()")
    assert value("!('none' in labels) && size(labels) == 1 && labels.all(k, k == 'a')")


@pytest.mark.parametrize(
    ("expression", "cost"),
    [
        ("true", 0),
        ("self.replicas == 1", 3),
        ("self.name == 'abcdefghijk'", 3),
        ("has(self.name)", 1),
        ("[1, 2, 3].all(x, x > 0)", 16),
        ("self.replicas in [1, 2, 3]", 2),
        ("quantity('1Gi').isGreaterThan(quantity('1G'))", 3),
        ("lists.range(5).size() == 5", 18),
        ("true ? self.replicas > 1 : false", 3),
    ],
)
def test_cost_is_counted_as_upstream_counts_it(expression, cost):
    assert compile(expression, ENVIRONMENT).run({"self": NEW}).cost == cost


def test_nothing_absorbs_a_cost_above_the_limit():
    program = compile("lists.range(2000).all(x, x >= 0) || true", ENVIRONMENT)
    with pytest.raises(CostLimitExceededError, match="actual cost limit exceeded"):
        program.evaluate({})
    assert isinstance(program.run({}).error, CostLimitExceededError)


def test_without_a_limit_nothing_is_cancelled():
    unlimited = Environment({}, KUBERNETES)
    assert compile("lists.range(2000).all(x, x >= 0)", unlimited).evaluate({}) is True
