"""Who sends a request: certificates, proxies, tokens, anonymous; a bad proof is never anonymous."""

import ssl
import time

import pytest

from kubesched.app.server.authentication import (
    Authenticator,
    PeerCertificate,
    TokenReviewer,
    user_in_headers,
)
from kubesched.app.server.trust import HeaderNames, Trust
from kubesched.app.server.users import ANONYMOUS, User
from kubesched.base.clock import ManualClock
from kubesched.base.errors import ServerError, Unauthorized
from kubesched.base.http_server.messages import Headers

SUBJECT = (
    (("organizationName", "dev"),),
    (("organizationName", "ops"),),
    (("commonName", "alice"),),
)


def peer(certificates, *, subject=SUBJECT, not_after="Jan  1 00:00:00 2100 GMT"):
    der = ssl.PEM_cert_to_DER_cert(certificates.client_certificate.decode())
    return PeerCertificate({"subject": subject, "notAfter": not_after}, der)


def authenticator(reviews=None, trust=None, clock=None):
    clock = clock or ManualClock(time.time())
    tokens = None if reviews is None else TokenReviewer(reviews, ttl_s=10, clock=clock)
    return Authenticator(lambda: trust or Trust(), tokens, clock=clock)


def bearer(token):
    return Headers([("Authorization", f"Bearer {token}")])


async def test_nothing_presented_is_the_anonymous_user(reviews):
    assert await authenticator(reviews).authenticate(None, Headers()) is ANONYMOUS


async def test_a_certificate_names_user_and_groups(certificates):
    trust = Trust(client_ca=certificates.ca_certificate.decode())
    user = await authenticator(trust=trust).authenticate(peer(certificates), Headers())
    assert user.name == "alice"
    assert user.groups == ("dev", "ops", "system:authenticated")


async def test_an_expired_certificate_on_an_old_connection_is_refused(certificates):
    trust = Trust(client_ca=certificates.ca_certificate.decode())
    expired = peer(certificates, not_after="Jan  1 00:00:00 2020 GMT")
    with pytest.raises(Unauthorized):
        await authenticator(trust=trust).authenticate(expired, Headers())


async def test_a_certificate_without_a_name_proves_nothing(certificates):
    trust = Trust(client_ca=certificates.ca_certificate.decode())
    with pytest.raises(Unauthorized):
        await authenticator(trust=trust).authenticate(peer(certificates, subject=()), Headers())


async def test_a_proxys_certificate_does_not_make_it_a_user(certificates, other_certificates):
    trust = Trust(
        client_ca=certificates.ca_certificate.decode(),
        proxy_ca=other_certificates.ca_certificate.decode(),
    )
    with pytest.raises(Unauthorized):
        await authenticator(trust=trust).authenticate(peer(other_certificates), Headers())


async def test_a_users_certificate_does_not_make_it_a_proxy(certificates, other_certificates):
    trust = Trust(
        client_ca=certificates.ca_certificate.decode(),
        proxy_ca=other_certificates.ca_certificate.decode(),
    )
    headers = Headers([("X-Remote-User", "root")])
    user = await authenticator(trust=trust).authenticate(peer(certificates), headers)
    assert user.name == "alice"


async def test_a_proxy_names_the_user_in_headers(other_certificates):
    trust = Trust(proxy_ca=other_certificates.ca_certificate.decode(), proxy_names=("alice",))
    headers = Headers(
        [("X-Remote-User", "bob"), ("X-Remote-Group", "g1"), ("X-Remote-Group", "g2")]
    )
    user = await authenticator(trust=trust).authenticate(peer(other_certificates), headers)
    assert (user.name, user.groups) == ("bob", ("g1", "g2", "system:authenticated"))


async def test_a_proxy_of_another_name_is_not_believed(other_certificates):
    trust = Trust(proxy_ca=other_certificates.ca_certificate.decode(), proxy_names=("front-proxy",))
    headers = Headers([("X-Remote-User", "bob")])
    with pytest.raises(Unauthorized):
        await authenticator(trust=trust).authenticate(peer(other_certificates), headers)


async def test_headers_without_a_certificate_are_ignored():
    headers = Headers([("X-Remote-User", "root")])
    assert await authenticator().authenticate(None, headers) is ANONYMOUS


def test_extra_headers_are_collected_by_prefix():
    headers = Headers(
        [
            ("X-Remote-User", "bob"),
            ("X-Remote-Extra-Scopes", "a"),
            ("X-Remote-Extra-Scopes", "b"),
            ("X-Remote-Extra-Acme.com%2fproject", "p"),
            ("X-Remote-Uid", "42"),
        ]
    )
    user = user_in_headers(headers, HeaderNames(uid=("x-remote-uid",)))
    assert user == User(
        name="bob", uid="42", extra={"scopes": ("a", "b"), "acme.com/project": ("p",)}
    )


async def test_a_token_is_reviewed_once_and_then_remembered(reviews):
    reviews.users["good"] = {"username": "alice", "uid": "7", "groups": ["dev"]}
    who = authenticator(reviews)
    for _ in range(3):
        user = await who.authenticate(None, bearer("good"))
    assert (user.name, user.uid, user.groups) == ("alice", "7", ("dev", "system:authenticated"))
    assert len(reviews.asked) == 1


async def test_a_bad_token_is_refused_and_remembered(reviews):
    who = authenticator(reviews)
    for _ in range(3):
        with pytest.raises(Unauthorized):
            await who.authenticate(None, bearer("bad"))
    assert len(reviews.asked) == 1


async def test_a_token_without_a_verdict_is_refused_but_reviewed_again(reviews):
    reviews.broken = ServerError("down")
    who = authenticator(reviews)
    with pytest.raises(Unauthorized):
        await who.authenticate(None, bearer("good"))
    reviews.broken = None
    reviews.users["good"] = {"username": "alice"}
    assert (await who.authenticate(None, bearer("good"))).name == "alice"


async def test_a_good_token_makes_up_for_a_certificate_that_proves_nothing(reviews, certificates):
    reviews.users["good"] = {"username": "alice"}
    user = await authenticator(reviews).authenticate(peer(certificates), bearer("good"))
    assert user.name == "alice"


async def test_without_a_reviewer_a_token_says_nothing():
    assert await authenticator().authenticate(None, bearer("good")) is ANONYMOUS


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer ", "Basic abc", "good"])
async def test_other_authorization_headers_are_no_tokens(reviews, value):
    headers = Headers([("Authorization", value)])
    assert await authenticator(reviews).authenticate(None, headers) is ANONYMOUS
    assert reviews.asked == []


async def test_an_anonymous_answer_stays_anonymous(reviews):
    reviews.users["odd"] = {"username": "system:anonymous"}
    user = await authenticator(reviews).authenticate(None, bearer("odd"))
    assert "system:authenticated" not in user.groups
