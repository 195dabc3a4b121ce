"""Pages about health and the process: to whom, with which status, type and words, as the real
kube-scheduler answers.
"""

from __future__ import annotations

import json
import re
import signal

import pytest
import yaml

pytestmark = pytest.mark.real

REAL = pytest.mark.parametrize(
    "cluster", [pytest.param("real", marks=pytest.mark.real)], indirect=True
)

OPEN = ["/healthz", "/livez", "/readyz"]
CHECKS = [
    "/healthz/leaderElection",
    "/healthz/ping",
    "/healthz/nope",
    "/livez/ping",
    "/readyz/leaderElection",
    "/readyz/shutdown",
    "/readyz/sched-handler-sync",
    "/readyz/informer-sync",
]
QUERIES = [
    "?verbose",
    "?verbose=false",
    "?exclude=leaderElection",
    "?verbose&exclude=leaderElection",
    "?verbose&exclude=ping&exclude=shutdown",
    "?verbose&exclude=nope",
    "?exclude=nope",
]
ELSEWHERE = ["/", "/nope", "/metrics/nope", "/healthz/", "/debug", "/debug/", "/debug/nope"]
FORMS = [
    "text/plain",
    "*/*",
    "text/html, text/plain;q=0.5",
    "application/json",
    "text/html",
    "application/json;v=v1alpha1;g=config.k8s.io;as={kind}",
    "application/json;v=v1beta1;g=config.k8s.io;as={kind}",
    "application/yaml;v=v1beta1;g=config.k8s.io;as={kind}",
    "application/cbor;v=v1beta1;g=config.k8s.io;as={kind}",
    "application/json;v=v1;g=config.k8s.io;as={kind}",
    "application/json;v=v1beta1;g=config.k8s.io;as=Nope",
]
METHODS = ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"]
HEADERS = ("Content-Type", "Cache-Control", "X-Content-Type-Options", "Warning", "Location")
BAD_TOKEN = {"Authorization": "Bearer nonsense"}
BASIC = {"Authorization": "Basic bm9ib2R5Om5vdGhpbmc="}


def questions():
    """(who, method, path, headers)."""
    for path in (*OPEN, *CHECKS, *ELSEWHERE, *(page + query for page in OPEN for query in QUERIES)):
        for who in ("admin", "anonymous"):
            yield who, "GET", path, {}
    for path in (*OPEN, "/metrics", "/configz", "/flagz", "/statusz", "/debug/pprof/", "/nope"):
        for headers in (BAD_TOKEN, BASIC):
            yield "anonymous", "GET", path, headers
        yield "anonymous", "GET", path, {"User-Agent": "curl/8.0"}
        for method in METHODS:
            yield "anonymous", method, path, {}
    for path, kind in (("/flagz", "Flagz"), ("/statusz", "Statusz")):
        for form in FORMS:
            yield "admin", "GET", path, {"Accept": form.format(kind=kind)}
        form = f"application/json;v=v1beta1;g=config.k8s.io;as={kind}"
        yield "admin", "GET", path, {"Accept": form, "User-Agent": "curl/8.0"}
    for method in ("GET", *METHODS):
        for path in (*OPEN, "/configz", "/flagz", "/statusz", "/nope"):
            yield "admin", method, path, {}
    for query in ("?pretty", "?pretty=1", "?pretty=0", "?pretty=true", "?pretty=false"):
        yield "anonymous", "GET", f"/nope{query}", {}
    for method in ("GET", "POST"):
        yield "admin", method, "/debug/flags/v", {}
    for path in ("/debug/pprof/nope",):
        yield "admin", "GET", path, {}


def essence(body, *, port):
    """Without what differs from process to process: times, version of the language, own port and
    flags, percentage.
    """
    text = body.decode().replace(str(port), "PORT")
    if text.startswith("\nkube-scheduler "):
        text = _same_delimiter(text)
    try:
        result = json.loads(text) if text.startswith("{") else yaml.safe_load(text)
    except yaml.YAMLError:
        result = None
    if not isinstance(result, dict):
        return text
    return _without_differences(result), _layout(text)


def _same_delimiter(text):
    """Either page is written with one of four delimiters, drawn at random."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if match := re.match(r"([a-z][a-z0-9-]*)(:|: |=| )(?! )(.*)$", line):
            lines[number] = "" if match[1] in OWN_FLAGS else f"{match[1]}|{match[3]}"
        elif match := re.match(r"([A-Z][a-z]+(?: version)?)(?:: | |:|=) (.*)$", line):
            lines[number] = VARIES.get(match[1], f"{match[1]}|{match[2]}")
    return "\n".join(line for line in lines if line)


OWN_FLAGS = (
    "config",
    "drain-timeout",
    "page",
    "record",
    "record-limit",
    "reference-version",
)
VARIES = {
    "Started": "Started|",
    "Up": "Up|",
    "Go version": "Language|",
    "Python version": "Language|",
}


def _without_differences(page):
    for key in ("startTime", "uptimeSeconds", "goVersion"):
        if key in page:
            page[key] = type(page[key]).__name__
    for name in OWN_FLAGS:
        page.get("flags", {}).pop(name, None)
    # Upstream writes 0 when nothing is set; here every node is looked at (docs/limits.md).
    page.get("componentconfig", {}).pop("percentageOfNodesToScore", None)
    return page


def _shown(question, theirs, ours):
    """What differs, and no more than that."""
    parts = [
        (sorted(set(one.splitlines()) - set(other.splitlines())), one[:80])
        if isinstance(one, str)
        else one
        for one, other in ((theirs[2], ours[2]), (ours[2], theirs[2]))
        if isinstance(one, type(other))
    ]
    return question, theirs[:2], ours[:2], parts


def _layout(text):
    """How it is written: indented or not, ended by a newline or not."""
    return text[:3], text.endswith("\n")


@REAL
async def test_every_page_answers_as_kube_schedulers(cluster, contestant, admin_certificate):
    answers = {}
    for kind in ("theirs", "ours"):
        scheduler = await contestant(kind, kind=kind)
        await cluster.eventually(scheduler.is_ready)
        await scheduler.says("Successfully acquired lease")
        async with scheduler.client(admin_certificate) as admin, scheduler.client() as anonymous:
            sessions = {"admin": admin, "anonymous": anonymous}

            async def trusts(session=admin):
                # The authorities of clients come from the cluster a moment after the port opens.
                async with session.get("/configz") as answer:
                    return answer.status == 200

            await cluster.eventually(trusts)
            answers[kind] = {}
            for who, method, path, headers in questions():
                async with sessions[who].request(
                    method, path, headers=headers, allow_redirects=False
                ) as answer:
                    body = await answer.read()
                    told = {name: answer.headers.get(name) for name in HEADERS}
                    answers[kind][who, method, path, str(headers)] = (
                        answer.status,
                        told,
                        essence(body, port=scheduler.port),
                    )
        await scheduler.kill(signal.SIGTERM)
    theirs, ours = answers["theirs"], answers["ours"]
    assert [_shown(key, theirs[key], ours[key]) for key in theirs if theirs[key] != ours[key]] == []
    assert {status for status, _, _ in theirs.values()} == {200, 401, 403, 404, 406}


@REAL
async def test_a_user_without_permission_is_refused_in_the_same_words(cluster, contestant):
    """A user with a token that the cluster knows, and no rights to any page."""
    made = await cluster.create(
        "/api/v1/namespaces/default/serviceaccounts",
        apiVersion="v1",
        kind="ServiceAccount",
        metadata={"name": "curious"},
    )
    assert made["metadata"]["uid"]
    token = await cluster.create(
        "/api/v1/namespaces/default/serviceaccounts/curious/token",
        apiVersion="authentication.k8s.io/v1",
        kind="TokenRequest",
        spec={},
    )
    bearer = {"Authorization": f"Bearer {token['status']['token']}"}
    answers = []
    for kind in ("theirs", "ours"):
        scheduler = await contestant(kind, kind=kind)
        await cluster.eventually(scheduler.is_ready)
        results = {}
        async with scheduler.client() as session:
            for path in (*OPEN, "/healthz/ping", "/metrics", "/configz", "/flagz", "/nope"):
                async with session.get(path, headers=bearer) as answer:
                    told = {name: answer.headers.get(name) for name in HEADERS}
                    results[path] = answer.status, told, (await answer.read()).decode()
        answers.append(results)
        await scheduler.kill(signal.SIGTERM)
    theirs, ours = answers
    assert ours == theirs
    assert theirs["/metrics"][0] == 403
    assert 'User \\"system:serviceaccount:default:curious\\"' in theirs["/metrics"][2]
    assert theirs["/healthz"][0] == 200
