"""The recipes for plugins of one's own and for k3s, as far as they go without containers: pages are
the source.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kubesched.app.flag_parsing import parse

ROOT = Path(__file__).parents[3]
HOW_TO = ROOT / "docs" / "how-to"
KUBESCHED = [sys.executable, "-m", "kubesched"]


def blocks(page, language):
    text = (HOW_TO / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run(words, *, path):
    environment = {**os.environ, "PYTHONPATH": str(path)}
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_plugin_in_a_config_map_is_found(chart, tmp_path):
    (module,) = blocks("deploy-your-plugins.md", "python")
    (values,) = blocks("deploy-your-plugins.md", "yaml")
    rendered = chart(**yaml.safe_load(values))
    (deployment,) = rendered["deployment.yaml"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (variable,) = container["env"]
    assert variable["name"] == "PYTHONPATH"
    assert variable["value"] in [mount["mountPath"] for mount in container["volumeMounts"]]
    mounted = tmp_path / "plugins"
    mounted.mkdir()
    (mounted / "racks.py").write_text(module)
    (config,) = rendered["configmap.yaml"]
    file = tmp_path / "scheduler.yaml"
    file.write_text(config["data"]["scheduler.yaml"])
    words = [*KUBESCHED, "config", "validate", str(file)]
    assert run(words, path=mounted).stdout == f"{file}: ok\n"
    assert "No module named 'racks'" in run(words, path=tmp_path).stdout


@pytest.fixture(scope="module")
def recipe():
    (text,) = blocks("deploy-your-plugins.md", "dockerfile")
    return text


def test_a_package_in_an_image_is_found(recipe, tmp_path):
    """The image's pip command, with folders of this machine and without an index."""
    made = [*KUBESCHED, "plugin", "new", "RackOnly", "--dir", str(tmp_path / "plugin")]
    assert run(made, path="").returncode == 0
    (command,) = re.findall(r"^RUN (pip .*)", recipe, re.MULTILINE)
    places = {"/plugin": str(tmp_path / "plugin"), "/site": str(tmp_path / "site")}
    words = [places.get(word, word) for word in shlex.split(command)[1:]]
    offline = ["--no-index", "--no-build-isolation"]
    installed = run([sys.executable, "-m", "pip", *words, *offline], path="")
    assert installed.returncode == 0, installed.stderr
    listed = run([*KUBESCHED, "plugin", "list"], path=tmp_path / "site").stdout
    assert re.search(r"^RackOnly +rack-only 0\.1\.0", listed, re.MULTILINE), listed


def test_the_image_has_the_same_python_and_place(recipe):
    image = (ROOT / "deploy" / "Containerfile").read_text()
    (version,) = set(re.findall(r"^FROM python:(3\.\d+)-slim", image, re.MULTILINE))
    assert f"FROM python:{version}-slim AS build" in recipe
    (place,) = re.findall(r"python -m venv (/opt/\S+)", image)
    assert recipe.rstrip().endswith(f"{place}/lib/python{version}/site-packages")


def test_the_static_pod_of_k3s(tmp_path):
    page = (HOW_TO / "deploy-on-kind-and-k3s.md").read_text()
    (command,) = re.findall(r"^# (sed -e .*) > \S+$", page, re.MULTILINE)
    text = subprocess.run(
        shlex.split(command), cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "/etc/kubernetes" not in text.partition("apiVersion")[2]
    spec = yaml.safe_load(text)["spec"]
    (container,) = spec["containers"]
    server = "/var/lib/rancher/k3s/server"
    options = parse(container["args"][1:]).options
    given = {
        options.kubeconfig,
        options.authentication_kubeconfig,
        options.authorization_kubeconfig,
    }
    assert given == {f"{server}/cred/scheduler.kubeconfig"}
    mount, _ = container["volumeMounts"]
    volume, _ = spec["volumes"]
    assert (mount["mountPath"], mount["readOnly"]) == (server, True)
    assert volume["hostPath"] == {"path": server, "type": "Directory"}
