"""Service account tokens, RBAC, impersonation and the reviews that ask about them."""

from __future__ import annotations

import json
import random

import pytest

from kubesched.playground.auth.rbac import Attributes, RbacAuthorizer
from kubesched.playground.handlers.exchange import ApiRequest
from kubesched.playground.registry.users import ADMINISTRATOR, User
from kubesched.playground.server.api_server import ApiServer

RBAC = "rbac.authorization.k8s.io"
BOB = User("bob")


@pytest.fixture
def server(api, clock):
    return ApiServer(
        api.registry, clock=clock, rng=random.Random(7), token="secret", authorization="rbac"
    )


@pytest.fixture
def call(server):
    async def call(method, target, body=None, *, user=BOB, **headers):
        path, _, query = target.partition("?")
        data = b"" if body is None else json.dumps(body).encode()
        sent = {
            "content-type": "application/json",
            **{key.replace("_", "-"): value for key, value in headers.items()},
        }
        response = await server.handle(ApiRequest(method, path, query, sent, data, user))
        if response.stream is not None:
            await response.stream.aclose()
            return response.status, None
        return response.status, json.loads(response.body)

    return call


def grant(api, name, rules, subject, namespace="default"):
    """A role with these rules, bound to the subject; without a namespace, everywhere."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    prefix = "" if namespace else "cluster"
    kind = "Role" if namespace else "ClusterRole"
    api.create(f"{prefix}roles.{RBAC}", {"metadata": metadata, "rules": rules})
    reference = {"apiGroup": RBAC, "kind": kind, "name": name}
    binding = {"metadata": metadata, "roleRef": reference, "subjects": [subject]}
    api.create(f"{prefix}rolebindings.{RBAC}", binding)


def rule(resources, verbs, group="", **more):
    return {"apiGroups": [group], "resources": resources, "verbs": verbs, **more}


TO_BOB = {"kind": "User", "name": "bob", "apiGroup": RBAC}


async def test_what_no_role_allows_is_refused_in_upstream_words(call):
    status, body = await call("GET", "/api/v1/namespaces/default/pods")
    assert status == 403
    assert body["message"] == (
        'pods is forbidden: User "bob" cannot list resource "pods" in API group ""'
        ' in the namespace "default"'
    )
    _status, body = await call("GET", "/apis/apps/v1/namespaces/default/deployments/web/scale")
    assert body["message"] == (
        'deployments.apps "web" is forbidden: User "bob" cannot get resource "deployments/scale"'
        ' in API group "apps" in the namespace "default"'
    )
    _status, body = await call("GET", "/api/v1/nodes")
    assert body["message"].endswith("at the cluster scope")
    status, body = await call("GET", "/nowhere")
    assert (status, body["message"]) == (403, 'forbidden: User "bob" cannot get path "/nowhere"')


async def test_the_administrator_may_everything_and_everyone_may_discover(call):
    assert (await call("GET", "/api/v1/nodes", user=ADMINISTRATOR))[0] == 200
    for path in (
        "/api",
        "/apis",
        "/api/v1",
        "/apis/apps/v1",
        "/version",
        "/openapi/v3",
        "/healthz",
    ):
        assert (await call("GET", path))[0] == 200 if path != "/healthz" else True


async def test_a_role_counts_in_its_namespace_only(api, server, call):
    grant(api, "reader", [rule(["pods"], ["get", "list", "watch"])], TO_BOB)
    assert (await call("GET", "/api/v1/namespaces/default/pods"))[0] == 200
    watch = "/api/v1/namespaces/default/pods?watch=true&timeoutSeconds=1"
    assert (await call("GET", watch))[0] == 200
    for method, path in (
        ("GET", "/api/v1/namespaces/kube-system/pods"),
        ("GET", "/api/v1/pods"),
        ("DELETE", "/api/v1/namespaces/default/pods"),
        ("POST", "/api/v1/namespaces/default/pods"),
        ("GET", "/api/v1/namespaces/default/pods/p/log"),
    ):
        assert (await call(method, path, {} if method == "POST" else None))[0] == 403


@pytest.mark.parametrize(
    ("rules", "attributes", "is_allowed"),
    [
        pytest.param([rule(["*"], ["*"], "*")],
                     {"verb": "delete", "group": "apps", "resource": "deployments"}, True,
                     id="everything"),
        pytest.param([rule(["pods/log"], ["get"])],
                     {"verb": "get", "resource": "pods", "subresource": "log"}, True,
                     id="a subresource"),
        pytest.param([rule(["pods"], ["get"])],
                     {"verb": "get", "resource": "pods", "subresource": "log"}, False,
                     id="not with its resource"),
        pytest.param([rule(["*/scale"], ["get"], "apps")],
            {"verb": "get", "group": "apps", "resource": "deployments", "subresource": "scale"},
            True, id="a subresource of any"),
        pytest.param([rule(["secrets"], ["get"], resourceNames=["a"])],
                     {"verb": "get", "resource": "secrets", "name": "a"}, True,
                     id="a named object"),
        pytest.param([rule(["secrets"], ["get"], resourceNames=["a"])],
                     {"verb": "get", "resource": "secrets", "name": "b"}, False,
                     id="another object"),
        pytest.param([rule(["deployments"], ["get"])],
                     {"verb": "get", "group": "apps", "resource": "deployments"}, False,
                     id="another group"),
        pytest.param([{"nonResourceURLs": ["/metrics/*"], "verbs": ["get"]}],
                     {"verb": "get", "path": "/metrics/slis"}, True, id="a path below"),
        pytest.param([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
                     {"verb": "get", "path": "/metrics/slis"}, False, id="not a path below"),
    ],
)  # fmt: skip
def test_rules(api, rules, attributes, is_allowed):
    grant(api, "r", rules, TO_BOB, namespace="")
    allowed = RbacAuthorizer(api.registry).allows(BOB, Attributes(**attributes))
    assert (allowed is not None) is is_allowed


@pytest.mark.parametrize(
    ("subject", "user"),
    [
        pytest.param({"kind": "Group", "name": "devs"}, User("eve", ("devs",)), id="a group"),
        pytest.param({"kind": "ServiceAccount", "name": "robot", "namespace": "kube-system"},
                     User.service_account("kube-system", "robot"), id="an account"),
        pytest.param({"kind": "Group", "name": "system:serviceaccounts:default"},
                     User.service_account("default", "x"), id="the accounts of a namespace"),
    ],
)  # fmt: skip
def test_subjects(api, subject, user):
    grant(api, "r", [rule(["pods"], ["list"])], subject, namespace="")
    authorizer = RbacAuthorizer(api.registry)
    wanted = Attributes(verb="list", resource="pods")
    assert authorizer.allows(user, wanted) is not None
    assert authorizer.allows(BOB, wanted) is None


async def create_token(call, name="default", **spec):
    path = f"/api/v1/namespaces/default/serviceaccounts/{name}/token"
    return await call("POST", path, {"kind": "TokenRequest", "spec": spec}, user=ADMINISTRATOR)


async def test_a_token_is_its_account_until_it_expires(server, call, clock):
    status, body = await create_token(call, expirationSeconds=600)
    assert status == 201
    token = body["status"]["token"]
    user = server.access.authenticate(token)
    assert user is not None
    assert user.name == "system:serviceaccount:default:default"
    assert "system:serviceaccounts:default" in user.groups
    assert server.access.authenticate(token[:-2] + "xx") is None
    assert server.access.authenticate("") is None
    clock.advance(601)
    assert server.access.authenticate(token) is None


async def test_a_token_dies_with_its_account(api, server, call):
    _status, body = await create_token(call)
    api.delete("serviceaccounts", "default", "default")
    assert api.get("serviceaccounts", "default", "default"), (
        "one of the same name came in its place"
    )
    assert server.access.authenticate(body["status"]["token"]) is None


async def test_tokens_that_are_not_issued(call):
    status, body = await create_token(call, expirationSeconds=5)
    assert status == 422
    assert "may not specify a duration less than 10 minutes" in body["message"]
    assert (await create_token(call, name="none"))[0] == 404


async def review(call, kind, spec, user=BOB):
    plural = f"{kind.lower()}s"
    group = "authentication" if kind in ("SelfSubjectReview", "TokenReview") else "authorization"
    status, body = await call(
        "POST", f"/apis/{group}.k8s.io/v1/{plural}", {"spec": spec}, user=user
    )
    assert status == 201, body
    return body["status"]


async def test_auth_can_i(api, call):
    grant(api, "reader", [rule(["pods"], ["get"])], TO_BOB)
    asked = {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}
    answer = await review(call, "SelfSubjectAccessReview", asked)
    assert answer == {
        "allowed": True,
        "reason": 'RBAC: allowed by RoleBinding "reader/default" of Role "reader" to User "bob"',
    }
    asked["resourceAttributes"]["verb"] = "delete"
    assert await review(call, "SelfSubjectAccessReview", asked) == {"allowed": False}
    rules = await review(call, "SelfSubjectRulesReview", {"namespace": "default"})
    assert {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]} in rules["resourceRules"]
    assert (await review(call, "SelfSubjectReview", {}))["userInfo"]["username"] == "bob"
    about_eve = {**asked, "user": "eve"}
    answer = await review(call, "SubjectAccessReview", about_eve, user=ADMINISTRATOR)
    assert answer == {"allowed": False}


async def test_impersonation_needs_permission_and_changes_the_user(api, call):
    path = "/api/v1/namespaces/default/pods"
    status, body = await call("GET", path, user=ADMINISTRATOR, impersonate_user="bob")
    assert (status, 'User "bob" cannot list' in body["message"]) == (403, True)
    status, body = await call("GET", path, impersonate_user="eve")
    assert (status, 'User "bob" cannot impersonate resource "users"' in body["message"]) == (
        403,
        True,
    )
    status, _body = await call(
        "GET", path, user=ADMINISTRATOR, impersonate_user="eve", impersonate_group="system:masters"
    )
    assert status == 200


async def test_without_rbac_everybody_may_everything(api, http):
    asked = {"spec": {"resourceAttributes": {"verb": "delete", "resource": "nodes"}}}
    answer = await http.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", asked)
    assert answer["status"]["allowed"] is True


async def test_a_writer_of_roles_may_grant_what_it_does_not_hold(api, call):
    """Unlike kube-apiserver, which would answer 403."""
    grant(api, "writer", [rule(["roles"], ["create"], RBAC)], TO_BOB)
    role = {"metadata": {"name": "new"}, "rules": [rule(["*"], ["*"], "*")]}
    assert (await call("POST", f"/apis/{RBAC}/v1/namespaces/default/roles", role))[0] == 201


@pytest.mark.parametrize(
    ("method", "path", "is_allowed"),
    [
        ("GET", "/api/v1/pods", True),
        ("GET", "/apis/resource.k8s.io/v1/devicetaintrules", True),
        ("GET", "/apis/storage.k8s.io/v1/storageclasses", True),
        ("POST", "/api/v1/namespaces/default/pods/p/binding", True),
        ("DELETE", "/api/v1/namespaces/default/pods/p", True),
        ("PATCH", "/api/v1/namespaces/default/pods/p/status", True),
        ("PATCH", "/api/v1/namespaces/default/persistentvolumeclaims/p", True),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler", True),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/other", False),
        ("POST", "/api/v1/namespaces/default/pods", False),
        ("GET", "/api/v1/secrets", False),
    ],
)
async def test_what_a_scheduler_may_do(call, method, path, is_allowed):
    body = {} if method in ("POST", "PUT") else None
    status, _ = await call(method, path, body, user=User("system:kube-scheduler"))
    assert (status != 403) is is_allowed
