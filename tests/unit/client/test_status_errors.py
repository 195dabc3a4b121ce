"""Every failure the server can describe becomes the exception of that name, with the server's own words."""

from __future__ import annotations

import msgspec
import pytest

from kubesched import errors
from kubesched.client.status_errors import error_from_answer, is_resource_version_too_large


def status(code: int, reason: str = "", message: str = "m", **details: object) -> bytes:
    body = {"kind": "Status", "status": "Failure", "code": code, "message": message}
    if reason:
        body["reason"] = reason
    if details:
        body["details"] = details
    return msgspec.json.encode(body)


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (405, "MethodNotAllowed", errors.MethodNotAllowed),
        (406, "NotAcceptable", errors.NotAcceptable),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (409, "", errors.Conflict),
        (410, "Expired", errors.Gone),
        (410, "Gone", errors.Gone),
        (413, "RequestEntityTooLarge", errors.RequestEntityTooLarge),
        (415, "UnsupportedMediaType", errors.UnsupportedMediaType),
        (418, "", errors.ApiError),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (429, "", errors.TooManyRequests),
        (500, "InternalError", errors.ServerError),
        (500, "ServerTimeout", errors.ServerError),
        (503, "ServiceUnavailable", errors.ServerError),
        (504, "Timeout", errors.ServerError),
        (599, "", errors.ServerError),
    ],
)
def test_reason_and_code_choose_the_exception(code, reason, expected):
    error = error_from_answer(code, status(code, reason), None)
    assert type(error) is expected
    assert (error.code, error.message) == (code, "m")
    if reason:
        assert error.reason == reason


def test_details_and_causes_are_kept():
    cause = {"reason": "FieldValueInvalid", "message": "bad", "field": "spec.x"}
    error = error_from_answer(422, status(422, "Invalid", name="p", causes=[cause]), None)
    assert error.details.name == "p"
    assert error.details.causes[0].field == "spec.x"


@pytest.mark.parametrize(
    ("header", "body", "expected"),
    [
        pytest.param("7", status(429), 7.0, id="the header"),
        pytest.param(None, status(429, retryAfterSeconds=3), 3.0, id="the details"),
        pytest.param(
            "7", status(429, retryAfterSeconds=3), 7.0, id="the header before the details"
        ),
        pytest.param("Wed, 21 Oct 2026 07:28:00 GMT", status(429), None, id="no dates"),
        pytest.param(None, status(429), None, id="neither"),
    ],
)
def test_retry_after_is_read_from(header, body, expected):
    assert error_from_answer(429, body, header).retry_after_s == expected


@pytest.mark.parametrize(
    ("body", "quoted"),
    [
        pytest.param(b"<html>\n  Bad Gateway</html>", "<html> Bad Gateway</html>", id="a page"),
        pytest.param(b"", "server answered with status 502", id="nothing"),
        pytest.param(b"\xff" * 9, "\ufffd" * 9, id="rubbish"),
        pytest.param(b'{"message":"\xff"}', '{"message":"\ufffd"}', id="JSON that is no UTF-8"),
        pytest.param(b"x" * 5000, "x" * 200 + "...", id="a long text, cut"),
        pytest.param(b'{"code":"x"}', '{"code":"x"}', id="JSON that is no Status"),
    ],
)
def test_bodies_that_are_no_status_are_quoted_briefly(body, quoted):
    error = error_from_answer(502, body, None)
    assert type(error) is errors.ServerError
    assert (error.message, error.code) == (quoted, 502)


def test_resource_version_from_the_future_is_recognised():
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    error = error_from_answer(504, status(504, "Timeout", causes=[cause]), None)
    assert is_resource_version_too_large(error)
    assert not is_resource_version_too_large(error_from_answer(504, status(504, "Timeout"), None))
