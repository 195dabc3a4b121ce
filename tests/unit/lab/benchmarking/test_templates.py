"""Templates: the Go template actions of workload files, what they make, and how they fail."""

import pytest

from kubesched.base.errors import ConfigError
from kubesched.lab.benchmarking.templates import Template, load_template

POD = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: pod-{value}\n"


def rendered(action, index=0, count=1, **params):
    made = Template("pod.yaml", POD.replace("{value}", "{{" + action + "}}")).render(
        index, count, params
    )
    return made["metadata"]["name"].removeprefix("pod-")


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        pytest.param(".Index", "7", id="the number of the object"),
        pytest.param(" .Count ", "10", id="how many there are, with spaces around"),
        pytest.param("- .Index -", "7", id="with trim markers"),
        pytest.param(".size", "big", id="a parameter of the operation"),
        pytest.param("Mod .Index 3", "1", id="a function"),
        pytest.param("DivideInt .Index 2", "3", id="division without remainder"),
        pytest.param("DivideInt 30000 .Count", "3000", id="a number before a parameter"),
        pytest.param("DivideFloat .Index 2", "3.5", id="division with a fraction"),
        pytest.param("AddInt 1 2 3", "6", id="as many arguments as one likes"),
        pytest.param("SubtractInt .Index 9", "-2", id="below zero"),
        pytest.param("MultiplyInt 2 (AddInt .Index 1)", "16", id="a function in parentheses"),
        pytest.param("MultiplyFloat 2 2.5", "5", id="a float without fraction is whole"),
        pytest.param('"text"', "text", id="a text"),
        pytest.param("7.9 | Int", "7", id="a pipeline"),
        pytest.param("2 | DivideInt .Index", "3", id="the last argument of a pipeline"),
        pytest.param("or .absent 5 | Int", "5", id="a default"),
        pytest.param("(or .absent nil) | JSON", "null", id="a default of nothing"),
        pytest.param("JSON .list", '["a", 1]', id="a list as JSON"),
        pytest.param("$x := 3}}{{AddInt $x 1", "4", id="a variable"),
        pytest.param("range 3}}{{.}}{{end", "012", id="a loop over a number"),
        pytest.param("range $i := 2}}{{$i}}{{.Index}}{{end", "0717", id="a loop with a variable"),
        pytest.param("range .list}}<{{.}}>{{end", "<a><1>", id="a loop over a list"),
        pytest.param("if .absent}}a{{else}}b{{end", "b", id="a condition"),
        pytest.param(
            'if eq .size "big"}}{{if ge .Index 7}}a{{end}}{{end', "a", id="nested conditions"
        ),
        pytest.param("if .Count -}} \n a {{- end", "a", id="white space is trimmed at markers"),
    ],
)
def test_actions_are_evaluated(action, expected):
    assert rendered(action, 7, 10, size="big", list=["a", 1]) == expected


@pytest.mark.parametrize(
    ("action", "complaint"),
    [
        pytest.param(".Nothing", "no parameter .Nothing; there are .Count, .Index", id="parameter"),
        pytest.param("Power .Index 2", "no function Power", id="function"),
        pytest.param("range .Index", "range has no end", id="a loop without end"),
        pytest.param("range .Items}}{{end", "no parameter .Items", id="a loop over nothing"),
        pytest.param("range 1.5}}{{end", "a whole number or a list", id="a loop over a fraction"),
        pytest.param("if .Index}}{{Power}}{{end", "no function Power", id="inside a condition"),
        pytest.param("end", "no function end", id="an end too many"),
        pytest.param("$x", "no variable $x", id="a variable"),
        pytest.param(".Index | printf", "no function printf", id="a pipeline"),
        pytest.param("Mod .Index nil", "None is no number", id="no value"),
        pytest.param("AddInt (Mod .Index 2", "a parenthesis is not closed", id="parenthesis"),
        pytest.param("Mod .Index 0", " by zero", id="division by zero"),
        pytest.param("Mod .Index", "missing 1 required", id="too few arguments"),
        pytest.param(".Index 5", "a value takes no arguments", id="a value with arguments"),
        pytest.param("AddInt Mod 2", "needs parentheses", id="a function as argument"),
        pytest.param("", "nothing to evaluate", id="nothing"),
    ],
)
def test_an_action_that_is_not_understood_is_named_with_file_and_line(action, complaint):
    with pytest.raises(ConfigError) as caught:
        rendered(action)
    assert complaint in str(caught.value)
    assert "pod.yaml" in str(caught.value)
    assert caught.value.problems[0].line == 4


def test_every_object_owns_its_metadata():
    template = Template("pod.yaml", POD.format(value="x"))
    first = template.render()
    first["metadata"]["namespace"] = "a"
    assert "namespace" not in template.render()["metadata"]


def test_the_case_of_spread_constraint_fields_does_not_matter_as_in_go():
    template = Template(
        "pod.yaml",
        POD.format(value="x")
        + "spec:\n  topologySpreadConstraints:\n  - NodeTaintsPolicy: Honor\n",
    )
    assert template.render()["spec"]["topologySpreadConstraints"] == [{"nodeTaintsPolicy": "Honor"}]


@pytest.mark.parametrize("text", ["[]", "kind: Pod\n", "apiVersion: v1\nkind: 3\n", "a: [", ""])
def test_a_template_that_is_no_object_is_refused_with_its_file(tmp_path, text):
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"broken\.yaml"):
        load_template(str(path))
