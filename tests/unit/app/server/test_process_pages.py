"""/configz, /flagz, /statusz and /debug: contents, and the media types they agree to."""

import asyncio
import json
import random

import pytest
import yaml

from kubesched.app.server.pages import ConfigPage, FlagsPage, StatusPage
from kubesched.app.server.profiling import DebugPages, stacks
from kubesched.app.server.requests import MediaType, PageRequest, accepted_types
from kubesched.base import logs
from kubesched.base.clock import ManualClock
from kubesched.config.references import REFERENCES
from kubesched.config.versions import DEFAULT_VERSIONS, Versions

FLAGS = {"config": "", "v": "2"}


def flagz(accept=None):
    page = FlagsPage(FLAGS, random.Random(1))
    return asyncio.run(page(PageRequest(path="/flagz", accept=accept)))


def statusz(accept=None, versions=DEFAULT_VERSIONS):
    clock = ManualClock()
    paths = ["/healthz", "/metrics"]
    page = StatusPage(clock.now() - 3725, paths, versions, clock, random.Random(1))
    return asyncio.run(page(PageRequest(path="/statusz", accept=accept)))


def test_configz_wraps_the_configuration():
    page = ConfigPage({"kind": "KubeSchedulerConfiguration"})
    answer = asyncio.run(page(PageRequest(path="/configz")))
    assert json.loads(answer.body) == {"componentconfig": {"kind": "KubeSchedulerConfiguration"}}
    assert answer.content_type == "application/json"


@pytest.mark.parametrize("accept", [None, "*/*", "text/plain", "text/plain;q=0.5, image/png"])
def test_flagz_is_text_for_people(accept):
    answer = flagz(accept)
    assert answer.status == 200
    lines = answer.body.decode().split("\n")
    assert lines[:2] == ["", "kube-scheduler flagz"]
    assert lines[2].startswith("Warning: ")
    assert lines[3].startswith("config")
    assert lines[4].startswith("v")


def test_the_delimiter_varies_so_that_it_is_not_parsed():
    def delimiter(seed):
        page = FlagsPage({"v": "2"}, random.Random(seed))
        body = asyncio.run(page(PageRequest(path="/flagz"))).body.decode()
        return body.rstrip("\n").rpartition("v")[2].removesuffix("2")

    assert {delimiter(seed) for seed in range(50)} == {":", ": ", "=", " "}


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha1"])
def test_flagz_is_structured_for_programs(version):
    answer = flagz(f"application/json;v={version};g=config.k8s.io;as=Flagz")
    assert json.loads(answer.body) == {
        "kind": "Flagz",
        "apiVersion": f"config.k8s.io/{version}",
        "metadata": {"name": "kube-scheduler"},
        "flags": FLAGS,
    }
    assert answer.content_type == f"application/json;g=config.k8s.io;v={version};as=Flagz"
    assert ("Warning" in (answer.headers or {})) is (version == "v1alpha1")


def test_statusz_can_be_yaml():
    answer = statusz("application/yaml;v=v1beta1;g=config.k8s.io;as=Statusz")
    document = yaml.safe_load(answer.body)
    assert document["kind"] == "Statusz"
    assert document["uptimeSeconds"] == 3725
    assert document["startTime"] == "2025-12-31T22:57:55Z"
    assert document["binaryVersion"] == "1.37.0"
    assert document["paths"] == ["/healthz", "/metrics"]


def test_statusz_tells_people_how_long_it_has_been_up():
    assert "1 hr 02 min 05 sec" in statusz().body.decode()


@pytest.mark.parametrize(
    "accept",
    [
        "application/json",
        "image/png",
        "application/json;v=v1;g=config.k8s.io;as=Flagz",
        "application/json;v=v1beta1;g=config.k8s.io;as=Statusz",
        "application/json;v=v1beta1;g=example.com;as=Flagz",
    ],
)
def test_what_cannot_be_offered_is_not_acceptable(accept):
    answer = flagz(accept)
    assert answer.status == 406
    assert json.loads(answer.body)["reason"] == "NotAcceptable"


def test_the_best_offer_wins():
    answer = flagz("application/json;v=v1beta1;g=config.k8s.io;as=Flagz;q=0.1, text/plain")
    assert answer.content_type.startswith("text/plain")


def test_an_accept_header_is_read_in_order_of_quality():
    assert accepted_types("a/b;q=0.1, c/d;v=1, ,e/f;q=x") == [
        MediaType("c/d", {"v": "1"}),
        MediaType("a/b"),
        MediaType("e/f"),
    ]


# /debug


def debug(path, method="GET", body=b"", **query):
    request = PageRequest(method=method, path=path, query=query, body=body)
    return asyncio.run(DebugPages()(request))


@pytest.fixture
def _verbosity():
    before = logs.verbosity()
    yield
    logs.set_verbosity(before)


@pytest.mark.usefixtures("_verbosity")
def test_verbosity_is_set_by_put():
    answer = debug("/debug/flags/v", "PUT", b"7")
    assert (answer.status, answer.body) == (
        200,
        b"successfully set klog.logging.verbosity to 7\n",
    )
    assert logs.verbosity() == 7


@pytest.mark.parametrize("body", [b"", b"-1", b"x", b"99999999999999"])
def test_a_verbosity_that_is_no_number_is_refused(body):
    assert debug("/debug/flags/v", "PUT", body).status == 400


@pytest.mark.parametrize("path", ["/debug/flags", "/debug/flags/", "/debug/flags/other"])
def test_the_flags_that_can_be_set_are_listed(path):
    answer = debug(path)
    assert answer.status == 200
    assert "v" in answer.body.decode().splitlines()


def test_verbosity_cannot_be_read():
    assert debug("/debug/flags/v").status == 406


def test_stacks_of_all_tasks_are_shown():
    async def main():
        waiting = asyncio.create_task(asyncio.Event().wait(), name="a task that waits")
        await asyncio.sleep(0)
        try:
            return stacks()
        finally:
            waiting.cancel()

    page = asyncio.run(main())
    assert "task a task that waits:" in page
    assert "thread MainThread:" in page


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/debug/pprof/", 200),
        ("/debug/pprof/cmdline", 200),
        ("/debug/pprof/heap", 501),
        ("/debug/pprof/nope", 404),
        ("/debug/nope", 404),
        ("/debug/pprof", 302),
    ],
)
def test_debug_paths(path, status):
    assert debug(path).status == status


def test_a_cpu_profile_is_what_py_spy_takes():
    answer = debug("/debug/pprof/profile")
    assert answer.status == 501
    assert b"py-spy record" in answer.body


@pytest.mark.parametrize(
    ("versions", "binary", "emulated"),
    [
        (DEFAULT_VERSIONS, "1.37.0", "1.37"),
        (Versions(emulated="1.36"), "1.37.0", "1.36"),
        (Versions(REFERENCES["1.36"]), "1.36.4", "1.36"),
    ],
)
def test_statusz_tells_which_release_it_stands_in_for(versions, binary, emulated):
    accept = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz"
    shown = json.loads(statusz(accept, versions).body)
    assert (shown["binaryVersion"], shown["emulationVersion"]) == (binary, emulated)


def test_a_media_type_that_is_not_served_is_answered_with_those_that_are():
    for asked in ("application/foo", "application/cbor;v=v1beta1;g=config.k8s.io;as=Statusz"):
        wrong = json.loads(statusz(asked).body)["message"]
        assert wrong.endswith("application/json, application/yaml, text/plain")
