"""Status objects to exceptions, and the wording of problems of fields."""

from __future__ import annotations

import pytest

from kubesched.api import codec, field_errors, status
from kubesched.api.status import (
    MAX_RETRY_AFTER_S,
    Status,
    StatusDetails,
    error_from_status,
)
from kubesched.base import errors


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        pytest.param(400, "BadRequest", errors.BadRequest, id="bad request"),
        pytest.param(401, "Unauthorized", errors.Unauthorized, id="unauthorized"),
        pytest.param(403, "Forbidden", errors.Forbidden, id="forbidden"),
        pytest.param(404, "NotFound", errors.NotFound, id="not found"),
        pytest.param(405, "MethodNotAllowed", errors.MethodNotAllowed, id="method not allowed"),
        pytest.param(406, "NotAcceptable", errors.NotAcceptable, id="not acceptable"),
        pytest.param(409, "AlreadyExists", errors.AlreadyExists, id="already exists"),
        pytest.param(409, "Conflict", errors.Conflict, id="conflict"),
        pytest.param(410, "Expired", errors.Gone, id="expired"),
        pytest.param(410, "Gone", errors.Gone, id="gone"),
        pytest.param(413, "RequestEntityTooLarge", errors.RequestEntityTooLarge, id="too large"),
        pytest.param(415, "UnsupportedMediaType", errors.UnsupportedMediaType, id="media type"),
        pytest.param(422, "Invalid", errors.Invalid, id="invalid"),
        pytest.param(429, "TooManyRequests", errors.TooManyRequests, id="too many requests"),
        pytest.param(500, "InternalError", errors.ServerError, id="internal error"),
        pytest.param(500, "ServerTimeout", errors.ServerError, id="server timeout"),
        pytest.param(503, "ServiceUnavailable", errors.ServerError, id="unavailable"),
        pytest.param(504, "Timeout", errors.ServerError, id="timeout"),
        pytest.param(409, "", errors.Conflict, id="a conflict without reason"),
        pytest.param(599, "Odd", errors.ServerError, id="an unknown server failure"),
        pytest.param(418, "Odd", errors.ApiError, id="an unknown client failure"),
    ],
)
def test_reason_then_code_decide_on_the_exception(code, reason, error):
    body = codec.encode(Status(status="Failure", message="m", reason=reason, code=code))
    result = error_from_status(code, body)
    assert type(result) is error
    assert (result.message, result.code) == ("m", code)
    assert result.reason == (reason or error.reason)


def test_advice_when_to_retry_comes_from_the_header_or_the_body():
    body = codec.encode(
        Status(
            message="slow", reason="TooManyRequests", details=StatusDetails(retry_after_seconds=7)
        )
    )
    assert error_from_status(429, body).retry_after_s == 7.0
    assert error_from_status(429, body, retry_after_s=2.5).retry_after_s == 2.5
    assert error_from_status(429, b"x").retry_after_s is None


@pytest.mark.parametrize(("asked", "granted"), [(10**18, MAX_RETRY_AFTER_S), (-3, 0.0), (60, 60.0)])
def test_retry_after_in_the_body_is_capped(asked, granted):
    body = b'{"kind":"Status","message":"slow","details":{"retryAfterSeconds":%d}}' % asked
    assert error_from_status(429, body).retry_after_s == granted


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            b"<html>\n  <h1>Bad  Gateway</h1>", "<html> <h1>Bad Gateway</h1>", id="a proxy's page"
        ),
        pytest.param(b"", "the server answered 502", id="no body"),
        pytest.param(b'{"kind":"Pod"}', '{"kind":"Pod"}', id="another object"),
        pytest.param(b'{"kind":5}', '{"kind":5}', id="JSON that is no Status"),
        pytest.param(b"x" * 4000, "x" * 512, id="a long page is cut"),
        pytest.param(b"\xff", "�", id="bytes that are no text"),
        pytest.param(b"[" * 5000, "[" * 512, id="nested too deep"),
    ],
)
def test_answers_that_are_no_status_become_the_message(body, message):
    result = error_from_status(502, body)
    assert type(result) is errors.ServerError
    assert (result.message, result.code) == (message, 502)


def test_wording_of_a_conflict():
    error = status.conflict("pods", "a", "it changed")
    assert str(error) == 'Operation cannot be fulfilled on pods "a": it changed'
    assert error.details == StatusDetails(name="a", kind="pods")
    of_a_group = status.conflict("deployments", "a", "it changed", "apps")
    assert str(of_a_group).startswith('Operation cannot be fulfilled on deployments.apps "a": ')
    assert of_a_group.details == StatusDetails(name="a", group="apps", kind="deployments")


def test_several_problems_are_one_message_and_one_cause_each():
    problems = [
        field_errors.required("spec.selector"),
        field_errors.invalid("spec.replicas", -1, "must be greater than or equal to 0"),
    ]
    assert field_errors.aggregate(problems) == (
        "[spec.selector: Required value, spec.replicas: Invalid value: -1: "
        "must be greater than or equal to 0]"
    )
    assert [(each.kind.reason, each.body()) for each in problems] == [
        ("FieldValueRequired", "Required value"),
        ("FieldValueInvalid", "Invalid value: -1: must be greater than or equal to 0"),
    ]


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        pytest.param(
            field_errors.duplicate("a[1]", "x"), 'a[1]: Duplicate value: "x"', id="duplicate"
        ),
        pytest.param(field_errors.not_found("a", "x"), 'a: Not found: "x"', id="not found"),
        pytest.param(field_errors.forbidden("a", "no"), "a: Forbidden: no", id="forbidden"),
        pytest.param(
            field_errors.too_long("a", 1), "a: Too long: may not be more than 1 byte", id="too long"
        ),
        pytest.param(
            field_errors.too_many("a", 9, 8),
            "a: Too many: 9: must have at most 8 items",
            id="too many",
        ),
        pytest.param(
            field_errors.not_supported("a", "z", ["x", "y"]),
            'a: Unsupported value: "z": supported values: "x", "y"',
            id="unsupported",
        ),
        pytest.param(field_errors.invalid("a", None, "d"), "a: Invalid value: null: d", id="null"),
        pytest.param(
            field_errors.invalid("a", True, "d"), "a: Invalid value: true: d", id="a boolean"
        ),
        pytest.param(
            field_errors.invalid("a", {"k": [1, 2]}, "d"),
            'a: Invalid value: {"k":[1,2]}: d',
            id="an object",
        ),
        pytest.param(field_errors.required("a", "why"), "a: Required value: why", id="required"),
    ],
)
def test_field_problems_read_as_upstreams(problem, text):
    assert str(problem) == text
