"""The deployment files as data, and just enough of Go's templates to render the chart.

helm itself is not needed: the chart keeps to field access, `if`, `toYaml`, `nindent`, `quote`, `default` and
`sha256sum`, which is what is rendered here. Anything else in a template is an error.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"

_ACTION = re.compile(r"(\s*)\{\{(-?)\s*(.*?)\s*(-?)\}\}(\s*)", re.S)


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
        parts, position = [], 0
        for match in _ACTION.finditer(template):
            before, trim_left, action, trim_right, after = match.groups()
            parts.append(
                ("text", template[position : match.start()] + ("" if trim_left else before))
            )
            parts.append(("action", action))
            position = match.end() if trim_right else match.end() - len(after)
        parts.append(("text", template[position:]))
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
        first, *rest = (part.strip() for part in expression.split("|"))
        value = self._call(first.split(), [])
        for part in rest:
            value = self._call(part.split(), [value])
        return value

    def _call(self, words, piped):
        name, *arguments = words
        if name.startswith("."):
            assert not arguments, words
            return self._field(name)
        arguments = [self._argument(word) for word in arguments] + piped
        if name == "toYaml":
            return yaml.safe_dump(arguments[0], sort_keys=False).rstrip("\n")
        if name == "nindent":
            count, text = arguments
            return "\n" + "\n".join(" " * count + line for line in text.split("\n"))
        if name == "quote":
            return f'"{arguments[0]}"'
        if name == "default":
            return arguments[1] or arguments[0]
        if name == "sha256sum":
            return hashlib.sha256(arguments[0].encode()).hexdigest()
        raise AssertionError(f"the chart uses {name}, which is not rendered here")

    def _argument(self, word):
        return self._field(word) if word.startswith(".") else int(word)

    def _field(self, path):
        value = self._values
        for name in path[1:].split("."):
            assert name in value, f"{path} has no value"
            value = value[name]
        return value


def merged(defaults, overrides):
    """As helm merges values: maps by key, everything else replaced."""
    return defaults | {
        key: merged(defaults[key], value)
        if isinstance(value, dict) and isinstance(defaults.get(key), dict)
        else value
        for key, value in overrides.items()
    }


def load(text):
    return [document for document in yaml.safe_load_all(text) if document]


@pytest.fixture(scope="session")
def manifests():
    """File name -> objects."""
    return {
        path.name: load(path.read_text())
        for path in sorted((DEPLOY / "manifests").glob("*.yaml"))
        if path.name != "kustomization.yaml"
    }


@pytest.fixture(scope="session")
def chart():
    """Renders the chart: template name -> objects."""
    folder = DEPLOY / "helm" / "kubesched"
    defaults = yaml.safe_load((folder / "values.yaml").read_text())

    def rendered(*, name="kubesched", namespace="kube-system", **overrides):
        values = merged(defaults, overrides)
        scope = {"Values": values, "Release": {"Name": name, "Namespace": namespace}}
        return {
            path.name: load(render(path.read_text(), scope))
            for path in sorted((folder / "templates").glob("*.yaml"))
        }

    return rendered
