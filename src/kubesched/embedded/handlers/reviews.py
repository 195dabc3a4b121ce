"""Authentication and authorisation questions, answered for a cluster with one all-powerful user."""

from __future__ import annotations

import hmac

from kubesched.embedded.exchange import ApiRequest, ApiResponse, decode_body
from kubesched.embedded.objects import JsonObject, encode
from kubesched.embedded.resources.catalog import ResourceInfo
from kubesched.errors import BadRequest

ADMIN_GROUPS = ["system:masters", "system:authenticated"]


def review(request: ApiRequest, resource: ResourceInfo, *, token: str) -> ApiResponse:
    """Answer a review; nothing is stored."""
    body = decode_body(request)
    if not isinstance(body, dict):
        raise BadRequest(f"the body must be a {resource.kind} object")
    spec = body.get("spec") if isinstance(body.get("spec"), dict) else {}
    answer: JsonObject = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {},
        "spec": spec,
        "status": _status(request, resource.kind, spec or {}, token),
    }
    return ApiResponse(201, encode(answer))


def _user(name: str) -> JsonObject:
    return {"username": name, "groups": ADMIN_GROUPS}


def _status(request: ApiRequest, kind: str, spec: JsonObject, token: str) -> JsonObject:
    if kind == "TokenReview":
        presented = str(spec.get("token", ""))
        if token and hmac.compare_digest(presented.encode(), token.encode()):
            return {"authenticated": True, "user": _user("kubernetes-admin")}
        return {"authenticated": False, "error": "[invalid bearer token]"}
    if kind == "SelfSubjectReview":
        return {"userInfo": _user(request.user)}
    if kind == "SelfSubjectRulesReview":
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        return {
            "resourceRules": [everything],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": False,
        }
    if kind == "SubjectAccessReview" and "system:masters" not in (spec.get("groups") or ()):
        # Every authenticated request is the administrator's; other users have no permissions.
        is_known = spec.get("user") not in (None, "", "system:anonymous")
        return {"allowed": is_known, "reason": "every authenticated user is an administrator here"}
    return {"allowed": True, "reason": "every authenticated user is an administrator here"}
