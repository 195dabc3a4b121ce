"""Reviews: authentication and authorization queries."""

from __future__ import annotations

from kubesched.base.errors import BadRequest, NotAcceptable
from kubesched.playground.apimachinery.objects import JsonObject, encode
from kubesched.playground.auth.access import EVERYTHING_ALLOWED, AccessControl
from kubesched.playground.auth.rbac import Attributes
from kubesched.playground.handlers.exchange import ApiRequest, ApiResponse, decode_body, negotiate
from kubesched.playground.handlers.routes import Target
from kubesched.playground.registry.users import User

_RULE_FIELDS = ("verbs", "apiGroups", "resources", "resourceNames")


def review(request: ApiRequest, target: Target, access: AccessControl) -> ApiResponse:
    """Answer a review; nothing is stored."""
    resource = target.resource
    if negotiate(request.headers.get("accept", "")).view:
        raise NotAcceptable(f"{resource.plural} cannot be shown as a table or by metadata")
    body = decode_body(request)
    if not isinstance(body, dict):
        raise BadRequest(f"the body must be a {resource.kind} object")
    spec = body.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    answer: JsonObject = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {},
        "spec": spec,
        "status": _status(request.user, resource.kind, spec, access),
    }
    return ApiResponse(201, encode(answer))


def _status(user: User, kind: str, spec: JsonObject, access: AccessControl) -> JsonObject:
    if kind == "TokenReview":
        known = access.authenticate(str(spec.get("token", "")))
        if known is None:
            return {"authenticated": False, "error": "[invalid bearer token]"}
        return {"authenticated": True, "user": _shown(known)}
    if kind == "SelfSubjectReview":
        return {"userInfo": _shown(user)}
    if kind == "SelfSubjectRulesReview":
        return _rules(user, str(spec.get("namespace") or ""), access)
    if kind != "SelfSubjectAccessReview":
        name = str(spec.get("user") or "")
        groups = tuple(str(group) for group in spec.get("groups") or ())
        is_admin = "system:masters" in groups
        if access.rbac is None and name in ("", "system:anonymous") and not is_admin:
            return {"allowed": False, "reason": EVERYTHING_ALLOWED}
        user = User(name, groups)
    reason = access.reason(user, _attributes(spec, access))
    if reason is None:
        return {"allowed": False}
    return {"allowed": True, "reason": reason} if reason else {"allowed": True}


def _shown(user: User) -> JsonObject:
    shown: JsonObject = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        shown["uid"] = user.uid
    return shown


def _attributes(spec: JsonObject, access: AccessControl) -> Attributes:
    wanted = spec.get("resourceAttributes")
    if isinstance(wanted, dict):
        return Attributes(
            verb=str(wanted.get("verb", "")),
            group=str(wanted.get("group", "")),
            resource=str(wanted.get("resource", "")),
            subresource=str(wanted.get("subresource", "")),
            name=str(wanted.get("name", "")),
            namespace=str(wanted.get("namespace", "")),
        )
    path = spec.get("nonResourceAttributes")
    if isinstance(path, dict):
        return Attributes(verb=str(path.get("verb", "")), path=str(path.get("path", "")) or "/")
    if access.rbac is not None:
        raise BadRequest("spec needs resourceAttributes or nonResourceAttributes")
    return Attributes(verb="")


def _rules(user: User, namespace: str, access: AccessControl) -> JsonObject:
    everything = Attributes(verb="*", group="*", resource="*")
    if access.rbac is None or access.rbac.allows(user, everything) is not None:
        rules = [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "nonResourceURLs": ["*"]},
        ]
    else:
        rules = [rule for _reason, rule in access.rbac.rules(user, namespace)]
    return {
        "resourceRules": [
            {key: rule[key] for key in _RULE_FIELDS if rule.get(key)}
            for rule in rules
            if rule.get("resources")
        ],
        "nonResourceRules": [
            {"verbs": rule["verbs"], "nonResourceURLs": rule["nonResourceURLs"]}
            for rule in rules
            if rule.get("nonResourceURLs")
        ],
        "incomplete": False,
    }
