"""The deployment files as data, and the chart rendered: by enough of Go's templates for it, and by
helm where there is one.

helm itself is not needed: the chart keeps to field access, `if`, `not`, `toYaml`, `nindent`,
`quote`, `include`, `print` and `sha256sum`, which is what is rendered here. Anything else in a
template is an error. Where `helm` is on the path, every test of the chart runs a second time with
what `helm template` makes of it.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"
CHART = DEPLOY / "helm" / "kubesched"

_ACTION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.S)
_TOKEN = re.compile(r'"[^"]*"|[()|]|[^\s()|]+')


def render(template: str, values: dict) -> str:
    """The template's text with the values filled in."""
    return _Renderer(template, values).run()


class _Renderer:
    def __init__(self, template, values):
        self._parts = self._split(template)
        self._values = values
        self._position = 0

    @staticmethod
    def _split(template):
        """Alternating text and actions, white space trimmed where a hyphen asks for it."""
        parts, position, trim = [], 0, False
        for match in _ACTION.finditer(template):
            text = template[position : match.start()]
            text = text.lstrip() if trim else text
            parts.append(("text", text.rstrip() if match[1] else text))
            parts.append(("action", match[2]))
            position, trim = match.end(), bool(match[3])
        rest = template[position:]
        parts.append(("text", rest.lstrip() if trim else rest))
        return parts

    def run(self):
        text = self._block(active=True)
        assert self._position == len(self._parts), "an {{ end }} too many"
        return text

    def _block(self, *, active):
        out = []
        while self._position < len(self._parts):
            kind, content = self._parts[self._position]
            self._position += 1
            if kind == "text":
                out.append(content)
            elif content == "end":
                return "".join(out) if active else ""
            elif content.startswith("if "):
                out.append(self._block(active=bool(self._evaluate(content[3:]))))
            else:
                out.append(str(self._evaluate(content)))
        return "".join(out) if active else ""

    def _evaluate(self, expression):
        tokens = _TOKEN.findall(expression)
        value = self._pipeline(tokens)
        assert not tokens, f"not understood: {tokens} in {expression}"
        return value

    def _pipeline(self, tokens):
        """Commands with `|` between them; each gives its value to the next as the last argument."""
        piped = []
        while True:
            words = []
            while tokens and tokens[0] not in "|)":
                words.append(self._operand(tokens))
            piped = [self._call(words, piped)]
            if not tokens or tokens[0] == ")":
                return piped[0]
            tokens.pop(0)

    def _operand(self, tokens):
        token = tokens.pop(0)
        if token == "(":
            value = self._pipeline(tokens)
            assert tokens.pop(0) == ")"
            return lambda: value
        if token.startswith('"'):
            return lambda: token[1:-1]
        if token == ".Files.Get":
            return "files_get"
        if token.startswith((".", "$.")):
            return lambda: self._field(token.removeprefix("$"))
        return (lambda: int(token)) if token.isdigit() else token

    def _call(self, words, piped):
        name, *operands = words
        if callable(name):
            assert not operands, words
            assert not piped, words
            return name()
        arguments = [operand() for operand in operands] + piped
        function = getattr(self, f"_{name}", None)
        assert function is not None, f"the chart uses {name}, which is not rendered here"
        return function(*arguments)

    # As helm has them. Its toYaml sorts keys; a pipe into nindent starts a new line.

    @staticmethod
    def _toYaml(value):  # noqa: N802  # its name in templates
        return yaml.safe_dump(value).rstrip("\n")

    @staticmethod
    def _nindent(count, text):
        return "\n" + "\n".join(" " * count + line for line in text.split("\n"))

    @staticmethod
    def _quote(value):
        assert '"' not in str(value), value
        return f'"{value}"'

    @staticmethod
    def _not(value):
        return not value

    @staticmethod
    def _sha256sum(text):
        return hashlib.sha256(text.encode()).hexdigest()

    @staticmethod
    def _print(*values):
        return "".join(map(str, values))

    @staticmethod
    def _files_get(name):
        return (CHART / name).read_text()

    def _include(self, name, scope):
        assert scope is self._values
        folder = self._values["Template"]["BasePath"]
        return render((CHART / "templates" / name.removeprefix(f"{folder}/")).read_text(), scope)

    def _field(self, path):
        value = self._values
        for name in filter(None, path.split(".")):
            assert name in value, f"{path} has no value"
            value = value[name]
        return value


def merged(defaults, overrides):
    """As helm merges values: maps by key, null removes, everything else is replaced."""
    together = defaults | {
        key: merged(defaults[key], value)
        if isinstance(value, dict) and isinstance(defaults.get(key), dict)
        else value
        for key, value in overrides.items()
    }
    return {key: value for key, value in together.items() if value is not None}


def load(text):
    return [document for document in yaml.safe_load_all(text) if document]


def rendered_here(name, namespace, values, _folder):
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    scope = {
        "Values": merged(defaults, values),
        "Release": {"Name": name, "Namespace": namespace},
        "Template": {"BasePath": "kubesched/templates"},
    }
    return {
        path.name: load(render(path.read_text(), scope))
        for path in sorted((CHART / "templates").glob("*.yaml"))
    }


def rendered_by_helm(name, namespace, values, folder):
    given = folder / "values.yaml"
    given.write_text(yaml.safe_dump(values))
    command = ["helm", "template", name, str(CHART), "--namespace", namespace, "-f", str(given)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    files = {path.name: [] for path in (CHART / "templates").glob("*.yaml")}
    for text in answer.stdout.split("\n---\n"):
        if source := re.search(r"# Source: kubesched/templates/(\S+)", text):
            files[source[1]] += load(text)
    return files


RENDERERS = {"rendered-here": rendered_here}
if shutil.which("helm"):
    RENDERERS["rendered-by-helm"] = rendered_by_helm


@pytest.fixture(scope="session")
def manifests():
    """File name -> objects."""
    return {
        path.name: load(path.read_text())
        for path in sorted((DEPLOY / "manifests").glob("*.yaml"))
        if path.name != "kustomization.yaml"
    }


@pytest.fixture(scope="session", params=RENDERERS)
def chart(request, tmp_path_factory):
    """Renders the chart: template name -> objects."""
    folder = tmp_path_factory.mktemp("chart")

    def rendered(*, name="kubesched", namespace="kube-system", **values):
        return RENDERERS[request.param](name, namespace, values, folder)

    return rendered
