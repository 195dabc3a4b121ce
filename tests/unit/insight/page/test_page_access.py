"""Tokens, cookies, Host and Origin: who gets in, and who does not."""

import stat

import pytest

from kubesched.base.clock import ManualClock
from kubesched.insight.page.access import (
    CONTENT_SECURITY_POLICY,
    SESSION_S,
    Access,
    is_allowed_host,
    is_same_origin,
    load_or_make_key,
)

KEY = b"k" * 32


def cookie_of(header):
    return {"cookie": "other=1; " + header.partition(";")[0]}


def test_a_token_is_good_for_one_use():
    access = Access(KEY, 80, ManualClock())
    token = access.token
    used = []
    access.on_used = lambda: used.append(access.token)
    header = access.redeem(token)
    assert header is not None
    assert "HttpOnly" in header
    assert "SameSite=Strict" in header
    assert access.is_known(cookie_of(header))
    assert access.redeem(token) is None
    assert used == [access.token]
    assert access.redeem(access.token) is not None


def test_a_cookie_outlives_the_server_but_not_its_time():
    clock = ManualClock()
    first = Access(KEY, 80, clock)
    header = cookie_of(first.redeem(first.token))
    assert Access(KEY, 80, clock).is_known(header)
    assert not Access(b"x" * 32, 80, clock).is_known(header)
    assert not Access(KEY, 81, clock).is_known(header)
    clock.advance(SESSION_S + 1)
    assert not first.is_known(header)


@pytest.mark.parametrize("value", ["", "1", "9999999999.a.b", "x.y.z", "9" * 30 + ".a.b", "²³.a.b"])
def test_forged_cookies_are_refused(value):
    access = Access(KEY, 80, ManualClock())
    assert not access.is_known({"cookie": f"kubesched-page-80={value}"})


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:8080", True),
        ("localhost:8080", True),
        ("LOCALHOST", True),
        ("[::1]:8080", True),
        ("192.168.1.5:80", True),
        ("example.com:8080", False),
        ("127.0.0.1.example.com", False),
        ("localhost.example.com", False),
        ("", False),
        ("[evil]", False),
        ("[::1]evil.com", False),
        ("[::1]:80evil.com", False),
        ("127.0.0.1:80@evil.com", False),
        ("127.0.0.1:evil.com", False),
        ("localhost:80@evil.com", False),
        ("localhost:", False),
        ("127.0.0.1 evil.com", False),
        ("127.0.0.1\n", False),
        ("[127.0.0.1", False),
        ("::1", False),
        ("[::ffff:127.0.0.1]:80", True),
    ],
)
def test_names_that_others_control_are_no_hosts(host, allowed):
    assert is_allowed_host(host) == allowed


def test_only_the_page_itself_may_change_something():
    host = "127.0.0.1:8080"
    assert is_same_origin({"host": host, "origin": f"http://{host}"}, "http")
    assert not is_same_origin({"host": host, "origin": "http://127.0.0.1:9090"}, "http")
    assert not is_same_origin({"host": host, "origin": "null"}, "http")
    assert not is_same_origin({"host": host}, "http")


def test_the_policy_allows_nothing_inline():
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert "default-src 'none'" in CONTENT_SECURITY_POLICY


def test_the_key_is_kept_where_only_the_user_reads_it(tmp_path):
    path = tmp_path / "folder" / "page.key"
    key = load_or_make_key(path)
    assert len(key) == 32
    assert load_or_make_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
