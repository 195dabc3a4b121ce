"""The HTTP grammar: verbs and paths, bodies and media types, lists and pages, refusals as
`Status`.
"""

from __future__ import annotations

import json

import pytest

PODS = "/api/v1/namespaces/default/pods"
ALIAS_BOMB = b"a0: &a0 [x]\n" + b"".join(
    b"a%d: &a%d [%b]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 10)
)
MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str, **data: str) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_an_object_goes_round(http, make_pod):
    created = await http.post(PODS, make_pod("p"))
    assert created["kind"] == "Pod"
    assert await http.get(f"{PODS}/p") == created
    status, deleted = await http.call("DELETE", f"{PODS}/p")
    assert (status, deleted["metadata"]["uid"]) == (200, created["metadata"]["uid"])


async def test_deleting_most_kinds_is_answered_with_a_status(http):
    created = await http.post(MAPS, config_map("c"))
    status, body = await http.call("DELETE", f"{MAPS}/c")
    assert (status, body["kind"], body["status"]) == (200, "Status", "Success")
    assert body["details"] == {"name": "c", "kind": "configmaps", "uid": created["metadata"]["uid"]}


@pytest.mark.parametrize(
    ("method", "path", "body", "options", "code", "reason", "words"),
    [
        pytest.param("GET", f"{PODS}/ghost", None, {}, 404, "NotFound", 'pods "ghost" not found',
                     id="no such object"),
        pytest.param("GET", "/api/v1/unicorns", None, {}, 404, "NotFound",
                     "could not find the requested resource", id="no such kind"),
        pytest.param("GET", "/apis/nope/v1/pods", None, {}, 404, "NotFound", "could not find",
                     id="no such group"),
        pytest.param("GET", "/nonsense", None, {}, 404, "NotFound", "could not find",
                     id="no such path"),
        pytest.param("POST", "/api/v1/pods", {}, {}, 400, "BadRequest", "an empty namespace",
                     id="creating in no namespace"),
        pytest.param("POST", MAPS, b"{not json", {}, 400, "BadRequest", "json parse error",
                     id="malformed JSON"),
        pytest.param("POST", MAPS, b"[1]", {}, 400, "BadRequest",
                     "(must be of type ConfigMap): the body is not an object",
                     id="a list for an object"),
        pytest.param("POST", MAPS, b"", {}, 400, "BadRequest",
                     "unexpected end of JSON input (<empty>)", id="no body"),
        pytest.param("POST", MAPS, ALIAS_BOMB, {"content_type": "application/yaml"}, 400,
                     "BadRequest", "excessive aliasing", id="a YAML alias bomb"),
        pytest.param("POST", MAPS, b"a: [", {"content_type": "application/yaml"}, 400, "BadRequest",
                     "yaml: ", id="malformed YAML"),
        pytest.param("POST", MAPS, b"a: 1\na: 2", {"content_type": "application/yaml"}, 400,
                     "BadRequest", 'key "a" already set', id="a YAML key twice"),
        pytest.param("POST", MAPS, b"<x/>", {"content_type": "text/xml"}, 415,
                     "UnsupportedMediaType", "unknown format", id="another media type"),
        pytest.param("GET", f"{PODS}", None, {"accept": "text/html"}, 406, "NotAcceptable",
                     "media types are accepted", id="an answer we cannot give"),
        pytest.param("POST", MAPS, b'{"x":"' + b"x" * (3 << 20) + b'"}', {}, 413,
                     "RequestEntityTooLarge", "limit is 3145728", id="an oversized body"),
        pytest.param("POST", MAPS, {"kind": "Pod"}, {}, 400, "BadRequest",
                     "cannot be handled as a ConfigMap", id="another kind"),
        pytest.param("POST", MAPS, {"apiVersion": "v9"}, {}, 400, "BadRequest",
                     "must be of kind ConfigMap and version v1", id="another version"),
        pytest.param("POST", MAPS, {"metadata": {"name": "c", "namespace": "other"}}, {}, 400,
                     "BadRequest", "does not match the namespace", id="another namespace"),
        pytest.param("POST", MAPS, {"metadata": {"name": "c", "resourceVersion": "5"}}, {}, 400,
                     "BadRequest", "resourceVersion should not be set", id="creating at a version"),
        pytest.param("POST", MAPS, {"metadata": "x"}, {}, 400, "BadRequest", "metadata",
                     id="metadata that is no object"),
        pytest.param("POST", MAPS, {"metadata": {"name": "c"}, "data": {"x": 1}}, {}, 400,
                     "BadRequest",
                     "cannot unmarshal number into Go struct field ConfigMap.data of type string",
                     id="a number for a text"),
        pytest.param("GET", f"{PODS}?labelSelector=a%20in%20(", None, {}, 400, "BadRequest",
                     "unable to parse requirement", id="a broken label selector"),
        pytest.param("GET", f"{PODS}?fieldSelector=spec.image%3Dx", None, {}, 400, "BadRequest",
                     "field label not supported: spec.image", id="a field nobody indexes"),
        pytest.param("GET", f"{PODS}?fieldSelector=x", None, {}, 400, "BadRequest",
                     "invalid selector", id="a broken field selector"),
        pytest.param("GET", f"{PODS}?labelSelector=" + ",".join(["!a"] * 201), None, {}, 400,
                     "BadRequest", "the selector has more than 200 requirements and values",
                     id="a label selector that takes long"),
        pytest.param("GET", f"{PODS}?fieldSelector=" + ",".join(["spec.nodeName!%3Dx"] * 201), None,
                     {}, 400, "BadRequest", "more than 200", id="a field selector that takes long"),
        pytest.param("GET", f"{PODS}?resourceVersion=abc", None, {}, 400, "BadRequest",
                     "resourceVersion: Invalid value", id="a version that is no number"),
        pytest.param("GET", f"{PODS}?resourceVersion=99999999", None, {}, 504, "Timeout",
                     "Too large resource version", id="a version from the future"),
        pytest.param("GET", f"{PODS}?limit=x", None, {}, 400, "BadRequest", "ParseInt",
                     id="a limit that is no number"),
        pytest.param("GET", f"{PODS}?timeout=soon", None, {}, 400, "BadRequest",
                     'invalid timeout specified in the request URL - time: invalid duration "soon"',
                     id="a timeout that is no duration"),
        pytest.param("GET", "/version?timeout=1", None, {}, 400, "BadRequest",
                     'time: missing unit in duration "1"', id="a timeout without a unit"),
        pytest.param("GET", f"{PODS}?continue=zzz", None, {}, 400, "BadRequest",
                     "continue key is not valid", id="a made-up continuation"),
        pytest.param("GET", f"{PODS}?resourceVersionMatch=Exact", None, {}, 422, "Invalid",
                     "forbidden unless resourceVersion", id="exactly no version"),
        pytest.param("GET", f"{PODS}?watch=1&resourceVersionMatch=NotOlderThan", None, {}, 422,
                     "Invalid", "sendInitialEvents", id="a watch that matches nothing"),
        pytest.param("PATCH", f"{PODS}/p", {}, {}, 415, "UnsupportedMediaType",
                     "strategic-merge-patch", id="a patch of no kind"),
        pytest.param("PUT", PODS, {}, {}, 405, "MethodNotAllowed", "does not allow this method",
                     id="replacing a collection"),
        pytest.param("POST", f"{PODS}/p", {}, {}, 405, "MethodNotAllowed",
                     "does not allow this method", id="posting to an object"),
        pytest.param("GET", f"{PODS}/p/binding", None, {}, 405, "MethodNotAllowed",
                     "does not allow", id="reading a command"),
        pytest.param("GET", f"{PODS}/p/unknown", None, {}, 404, "NotFound", "could not find",
                     id="no such subresource"),
        pytest.param("POST", f"{MAPS}?dryRun=Some", config_map("c"), {}, 422, "Invalid",
                     "dryRun: Unsupported value", id="half a dry run"),
        pytest.param("POST", f"{MAPS}?fieldValidation=Loose", config_map("c"), {}, 422, "Invalid",
                     "fieldValidation: Unsupported value", id="an unknown strictness"),
    ],
)  # fmt: skip
async def test_a_request_that_cannot_be_served_is_told_why(
    http, method, path, body, options, code, reason, words
):
    before = http.server.registry.store.revision
    status, answer = await http.call(method, path, body, **options)
    assert (status, answer["kind"], answer["status"]) == (code, "Status", "Failure")
    assert (answer["code"], answer["reason"]) == (code, reason)
    assert words in answer["message"]
    assert http.server.registry.store.revision == before, "nothing is half-written"


async def test_unknown_fields_are_refused_warned_of_or_ignored_as_the_client_wishes(http, make_pod):
    pod = make_pod("p")
    pod["spec"]["nope"] = 1
    pod["spec"]["containers"][0]["imag"] = "x"
    status, answer = await http.call("POST", f"{PODS}?fieldValidation=Strict", pod)
    assert status == 400
    assert (
        'strict decoding error: unknown field "spec.containers[0].imag", unknown field "spec.nope"'
        in answer["message"]
    )
    response = await http.raw("POST", PODS, pod)
    assert response.status == 201
    assert response.headers == {
        "Warning": '299 - "unknown field \\"spec.containers[0].imag\\"", 299 - "unknown field '
        '\\"spec.nope\\""'
    }
    pod["metadata"]["name"] = "q"
    response = await http.raw("POST", f"{PODS}?fieldValidation=Ignore", pod)
    assert (response.status, response.headers) == (201, None)


async def test_bodies_may_be_yaml(http):
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 'y'}\ndata: {on: 'yes', n: '1e3'}\n"
    status, created = await http.call("POST", MAPS, body, content_type="application/yaml")
    assert (status, created["data"]) == (201, {"true": "yes", "false": "1e3"})


async def test_a_list_names_its_kind_and_revision(http, make_pod):
    for name in ("b", "a"):
        await http.post(PODS, make_pod(name))
    body = await http.get(PODS)
    assert (body["kind"], body["apiVersion"]) == ("PodList", "v1")
    assert [each["metadata"]["name"] for each in body["items"]] == ["a", "b"]
    assert body["metadata"] == {"resourceVersion": str(http.server.registry.store.revision)}


async def test_pages_show_one_revision_whatever_happens_between_them(http):
    for index in range(5):
        await http.post(MAPS, config_map(f"c{index}"))
    first = await http.get(f"{MAPS}?limit=2")
    assert first["metadata"]["remainingItemCount"] == 3
    await http.call("DELETE", f"{MAPS}/c3")
    await http.post(MAPS, config_map("c2b"))
    names = [each["metadata"]["name"] for each in first["items"]]
    page = first
    while token := page["metadata"].get("continue"):
        page = await http.get(f"{MAPS}?limit=2&continue={token}")
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        names += [each["metadata"]["name"] for each in page["items"]]
    assert names == ["c0", "c1", "c2", "c3", "c4"]


async def test_a_continuation_the_history_no_longer_covers_has_expired(http):
    for index in range(3):
        await http.post(MAPS, config_map(f"c{index}"))
    token = (await http.get(f"{MAPS}?limit=1"))["metadata"]["continue"]
    await http.post(MAPS, config_map("later"))
    http.server.registry.store.collection("configmaps").compact(http.server.registry.store.revision)
    status, answer = await http.call("GET", f"{MAPS}?limit=1&continue={token}")
    assert (status, answer["reason"]) == (410, "Expired")
    assert "You must start a new list without the continue parameter" in answer["message"]
    rest = await http.get(f"{MAPS}?continue={answer['metadata']['continue']}")
    assert [each["metadata"]["name"] for each in rest["items"]] == ["c1", "c2", "later"]


async def test_a_continuation_expires_after_five_minutes_and_goes_on_at_the_newest_revision(
    http, clock
):
    for index in range(4):
        await http.post(MAPS, config_map(f"c{index}"))
    first = await http.get(f"{MAPS}?limit=1")
    path = f"{MAPS}?limit=1&continue={first['metadata']['continue']}"
    await http.call("DELETE", f"{MAPS}/c1")
    clock.advance(300)
    assert (await http.get(path))["items"][0]["metadata"]["name"] == "c1"
    clock.advance(2)
    status, answer = await http.call("GET", path)
    assert (status, answer["reason"]) == (410, "Expired")
    second = await http.get(f"{MAPS}?limit=1&continue={answer['metadata']['continue']}")
    third = await http.get(f"{MAPS}?limit=1&continue={second['metadata']['continue']}")
    pages = (second, third)
    assert [page["items"][0]["metadata"]["name"] for page in pages] == ["c2", "c3"]
    versions = [page["metadata"]["resourceVersion"] for page in (first, *pages)]
    assert versions[0] != versions[1] == versions[2]


async def test_an_exact_revision_is_served_from_the_past(http):
    await http.post(MAPS, config_map("a", x="1"))
    then = http.server.registry.store.revision
    await http.call("DELETE", f"{MAPS}/a")
    past = await http.get(f"{MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")
    assert [each["metadata"]["name"] for each in past["items"]] == ["a"]
    now = await http.get(f"{MAPS}?resourceVersion={then}&resourceVersionMatch=NotOlderThan")
    assert now["items"] == []


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param("labelSelector=app%3Dweb", ["a", "b"], id="equality"),
        pytest.param("labelSelector=app%3Dweb,tier!%3Dfront", ["b"], id="inequality"),
        pytest.param("labelSelector=tier%20in%20(front,back)", ["a", "c"], id="membership"),
        pytest.param("labelSelector=!tier", ["b"], id="absence"),
        pytest.param("labelSelector=" + ",".join(["!tier"] * 200), ["b"], id="as much as may be"),
        pytest.param("fieldSelector=spec.nodeName%3Dn", ["c"], id="the node"),
        pytest.param(
            "fieldSelector=status.phase%3DPending,metadata.name!%3Da",
            ["b", "c"],
            id="phase and name",
        ),
        pytest.param("fieldSelector=spec.schedulerName%3Dother", [], id="the scheduler"),
    ],
)
async def test_selectors_select(http, api, make_pod, selector, expected):
    labels = {"a": {"app": "web", "tier": "front"}, "b": {"app": "web"}, "c": {"tier": "back"}}
    api.create("nodes", {"metadata": {"name": "n"}})
    for name, each in labels.items():
        pod = make_pod(name)
        pod["metadata"]["labels"] = each
        await http.post(PODS, pod)
    api.bind("default", "c", "n")
    found = await http.get(f"/api/v1/pods?{selector}")
    assert [each["metadata"]["name"] for each in found["items"]] == expected


async def test_signing_requests_are_selected_by_their_signer(http):
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    for name, signer in (("a", "example.com/mine"), ("b", "example.com/other")):
        spec = {"request": "", "signerName": signer, "usages": ["client auth"]}
        await http.post(path, {"metadata": {"name": name}, "spec": spec})
    found = await http.get(f"{path}?fieldSelector=spec.signerName%3Dexample.com/mine")
    assert [each["metadata"]["name"] for each in found["items"]] == ["a"]


async def test_metadata_alone_can_be_asked_for(http, make_pod):
    await http.post(PODS, make_pod("p"))
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    listed = await http.get(PODS, accept=accept)
    assert listed["kind"] == "PartialObjectMetadataList"
    assert listed["items"][0].keys() == {"metadata"}
    single = await http.get(
        f"{PODS}/p", accept="application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    )
    assert single["kind"] == "PartialObjectMetadata"


async def test_items_of_typed_lists_do_not_state_their_kind(http, api, make_pod):
    await http.post(PODS, make_pod("p"))
    api.create(
        "pods", {"metadata": {"name": "q", "namespace": "default"}, "spec": make_pod()["spec"]}
    )
    listed = await http.get(PODS)
    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["p", "q"]
    assert all(not {"kind", "apiVersion"} & item.keys() for item in listed["items"])


async def test_tables_have_the_version_that_was_asked_for(http, make_pod):
    await http.post(PODS, make_pod("p"))
    for version in ("v1", "v1beta1"):
        accept = f"application/json;as=Table;g=meta.k8s.io;v={version}"
        assert (await http.get(PODS, accept=accept))["apiVersion"] == f"meta.k8s.io/{version}"
    review = {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert (await http.call("POST", path, review, accept=accept))[0] == 406


@pytest.mark.parametrize("mode", ["Strict", "Warn", "Ignore"])
async def test_repeated_fields_are_told_as_asked(http, mode):
    body = b"""{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "nope": 1,
        "data": {"a": "1", "b": "2", "a": "3"}}"""
    path = f"/api/v1/namespaces/default/configmaps?fieldValidation={mode}"
    response = await http.raw("POST", path, body)
    words = 'unknown field \\"nope\\", {}duplicate field \\"data.a\\"'
    if mode == "Strict":
        assert response.status == 400
        assert words.format("") in response.body.decode()
    else:
        assert response.status == 201
        warning = (response.headers or {}).get("Warning", "")
        assert ('duplicate field \\"data.a\\"' in warning) is (mode == "Warn")


async def test_repeated_keys_of_applied_yaml_are_refused(http):
    path = "/api/v1/namespaces/default/configmaps/c?fieldManager=m"
    body = b"apiVersion: v1\nkind: ConfigMap\ndata:\n  a: x\n  a: y\n"
    status, answer = await http.call(
        "PATCH", path, body, content_type="application/apply-patch+yaml"
    )
    assert status == 400
    assert answer["message"].endswith(
        'yaml: unmarshal errors:\n  line 5: key "a" already set in map'
    )


async def test_protobuf_readers_are_answered_in_json(http, make_pod):
    await http.post(PODS, make_pod("p"))
    response = await http.raw(
        "GET", f"{PODS}/p", accept="application/vnd.kubernetes.protobuf,application/json"
    )
    assert response.content_type == "application/json"
    status, answer = await http.call(
        "GET", f"{PODS}/p", accept="application/vnd.kubernetes.protobuf"
    )
    assert (status, answer["reason"]) == (406, "NotAcceptable")


async def test_a_collection_is_deleted_by_selector(http):
    for name, label in (("a", "x"), ("b", "y"), ("c", "x")):
        body = config_map(name)
        body["metadata"]["labels"] = {"l": label}
        await http.post(MAPS, body)
    status, gone = await http.call("DELETE", f"{MAPS}?labelSelector=l%3Dx")
    assert (status, [each["metadata"]["name"] for each in gone["items"]]) == (200, ["a", "c"])
    assert [each["metadata"]["name"] for each in (await http.get(MAPS))["items"]] == ["b"]


async def test_delete_options_come_in_the_body(http, api, make_pod):
    api.create("nodes", {"metadata": {"name": "n"}})
    await http.post(PODS, make_pod("p"))
    api.bind("default", "p", "n")
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "wrong"}}
    status, answer = await http.call("DELETE", f"{PODS}/p", options)
    assert (status, answer["reason"]) == (409, "Conflict")
    status, pod = await http.call(
        "DELETE", f"{PODS}/p", {"gracePeriodSeconds": 7, "propagationPolicy": "Background"}
    )
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 7
    status, answer = await http.call("DELETE", f"{PODS}/p", {"propagationPolicy": "Sideways"})
    assert (status, "Unsupported value" in answer["message"]) == (422, True)


async def test_dry_runs_answer_as_if_and_do_nothing(http):
    status, answer = await http.call("POST", f"{MAPS}?dryRun=All", config_map("c", x="1"))
    assert (status, answer["data"]) == (201, {"x": "1"})
    status, _ = await http.call("GET", f"{MAPS}/c")
    assert status == 404


@pytest.mark.parametrize("path", [f"{PODS}/p/binding", "/api/v1/namespaces/default/bindings"])
async def test_bindings_are_posted_to_either_place(http, api, make_pod, path):
    api.create("nodes", {"metadata": {"name": "n"}})
    await http.post(PODS, make_pod("p"))
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n"},
    }
    answer = await http.post(path, binding)
    assert answer["status"] == "Success"
    status, answer = await http.call("POST", path, binding)
    assert (status, answer["reason"]) == (409, "Conflict")


async def test_a_binding_to_nothing_is_invalid(http, make_pod):
    await http.post(PODS, make_pod("p"))
    status, answer = await http.call("POST", f"{PODS}/p/binding", {"target": {"kind": "Service"}})
    assert (status, answer["reason"]) == (422, "Invalid")
    assert {each["field"] for each in answer["details"]["causes"]} == {"target.kind", "target.name"}


async def test_an_eviction_the_budget_forbids_is_too_many_requests(http, api, make_pod):
    api.create("nodes", {"metadata": {"name": "n"}})
    pod = make_pod("p")
    pod["metadata"]["labels"] = {"app": "web"}
    await http.post(PODS, pod)
    api.bind("default", "p", "n")
    conditions = [{"type": "Ready", "status": "True"}]
    api.patch(
        "pods",
        "default",
        "p",
        {"status": {"phase": "Running", "conditions": conditions}},
        subresource="status",
    )
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    api.create(
        "poddisruptionbudgets.policy",
        {"metadata": {"name": "b", "namespace": "default"}, "spec": spec},
    )
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    response = await http.raw("POST", f"{PODS}/p/eviction", eviction)
    answer = json.loads(response.body)
    assert (response.status, answer["reason"]) == (429, "TooManyRequests")
    assert answer["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert response.headers == {"Retry-After": "10"}


async def test_a_workload_is_scaled_through_its_scale(http):
    labels = {"a": "b"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    }
    path = "/apis/apps/v1/namespaces/default/deployments"
    await http.post(path, {"metadata": {"name": "d"}, "spec": spec})
    scale = await http.get(f"{path}/d/scale")
    assert (scale["kind"], scale["apiVersion"], scale["status"]["selector"]) == (
        "Scale",
        "autoscaling/v1",
        "a=b",
    )
    scale["spec"]["replicas"] = 4
    status, answer = await http.call("PUT", f"{path}/d/scale", scale)
    assert (status, answer["spec"]["replicas"]) == (200, 4)
    status, answer = await http.call("PUT", f"{path}/d/scale", scale)
    assert (status, answer["reason"]) == (409, "Conflict"), (
        "the version stated is no longer the current one"
    )


async def test_events_are_one_collection_under_two_names(http):
    event = {
        "metadata": {"name": "e", "namespace": "default"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "note": "hello",
        "reason": "Scheduled",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "me",
        "type": "Normal",
    }
    await http.post("/apis/events.k8s.io/v1/namespaces/default/events", event)
    core = await http.get("/api/v1/namespaces/default/events/e")
    assert (core["involvedObject"]["name"], core["message"], core["reportingComponent"]) == (
        "p",
        "hello",
        "me",
    )
    patch = {"series": {"count": 2}, "note": "again"}
    status, patched = await http.call(
        "PATCH",
        "/apis/events.k8s.io/v1/namespaces/default/events/e",
        patch,
        content_type="application/strategic-merge-patch+json",
    )
    assert (status, patched["apiVersion"], patched["note"]) == (200, "events.k8s.io/v1", "again")
    found = await http.get("/apis/events.k8s.io/v1/events?fieldSelector=regarding.name%3Dp")
    assert len(found["items"]) == 1


async def test_reviews_know_the_token_and_its_bearer(http):
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    good = await http.post(path, {"spec": {"token": "secret"}})
    bad = await http.post(path, {"spec": {"token": "guess"}})
    assert (good["status"]["authenticated"], bad["status"]["authenticated"]) == (True, False)
    allowed = await http.post(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": {}}
    )
    assert allowed["status"]["allowed"] is True
    stranger = await http.post(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": {"user": "system:anonymous"}}
    )
    assert stranger["status"]["allowed"] is False


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/livez/ping"])
async def test_the_server_says_it_is_well(http, path):
    response = await http.raw("GET", path)
    assert (response.status, response.body) == (200, b"ok")


async def test_a_fault_of_ours_is_an_internal_error_and_logged(http, monkeypatch, caplog):
    monkeypatch.setattr("kubesched.playground.handlers.reading.get", lambda *arguments: 1 / 0)
    status, answer = await http.call("GET", f"{PODS}/p")
    assert (status, answer["reason"]) == (500, "InternalError")
    assert "ZeroDivisionError" in caplog.text
