"""Whole requests over TLS: the order of authentication, authorization and routing, and that faults
stay contained.
"""

import asyncio
import gzip
import json

import aiohttp
import pytest

from kubesched.app.server.metrics_pages import MetricsPage
from kubesched.app.server.profiling import DebugPages
from kubesched.app.server.responses import text
from kubesched.app.server.trust import Trust
from kubesched.base.errors import ServerError
from kubesched.base.http_server.messages import Response
from kubesched.base.metrics import MetricsRegistry


async def hello(request):
    return text(f"hello {request.method}")


async def broken(request):
    raise ZeroDivisionError("secret detail")


@pytest.fixture
def anonymous(make_client):
    return make_client()


@pytest.fixture
def admin(make_client, certificates):
    return make_client(certificates)


@pytest.fixture
def trust(certificates):
    return Trust(client_ca=certificates.ca_certificate.decode())


async def test_anybody_may_ask_for_health(serve, anonymous):
    running = await serve()
    status, body, headers = await running.get("/healthz", context=anonymous)
    assert (status, body) == (200, b"ok")
    assert headers["Cache-Control"] == "no-cache, private"
    assert headers["X-Content-Type-Options"] == "nosniff"


async def test_a_stranger_may_see_nothing_else_not_even_whether_it_exists(serve, anonymous):
    running = await serve(pages={"/metrics": hello})
    for path in ("/metrics", "/nope"):
        status, body, _ = await running.get(path, context=anonymous)
        assert status == 403
        assert json.loads(body) == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f'forbidden: User "system:anonymous" cannot get path "{path}"',
            "reason": "Forbidden",
            "details": {},
            "code": 403,
        }


async def test_a_single_health_check_needs_permission(serve, anonymous):
    status, _, _ = await (await serve()).get("/healthz/ping", context=anonymous)
    assert status == 403


async def test_a_bad_token_is_refused_even_where_everybody_may_look(serve, anonymous):
    headers = {"Authorization": "Bearer bad"}
    status, body, _ = await (await serve()).get("/healthz", context=anonymous, headers=headers)
    assert status == 401
    assert json.loads(body)["reason"] == "Unauthorized"


async def test_a_token_with_permission_gets_the_page(serve, anonymous, reviews):
    reviews.users["good"] = {"username": "prometheus"}
    reviews.allowed.add(("prometheus", "get", "/metrics"))
    running = await serve(pages={"/metrics": hello})
    headers = {"Authorization": "Bearer good"}
    assert (await running.get("/metrics", context=anonymous, headers=headers))[:2] == (
        200,
        b"hello GET",
    )
    status, _, _ = await running.get("/metrics", context=anonymous, headers=headers, method="PUT")
    assert status == 403


async def test_an_administrators_certificate_is_enough(serve, admin, trust, reviews):
    running = await serve(pages={"/metrics": hello}, trust=trust)
    assert (await running.get("/metrics", context=admin))[0] == 200
    assert reviews.asked == []


async def test_an_unknown_path_is_not_found_for_those_who_may(serve, admin, trust):
    status, body, _ = await (await serve(trust=trust)).get("/nope", context=admin)
    assert (status, body) == (404, b"404 page not found\n")


async def test_a_page_can_be_opened_to_everybody(serve, anonymous):
    running = await serve(pages={"/metrics": hello}, open_paths=("/metrics",))
    assert (await running.get("/metrics", context=anonymous))[0] == 200
    assert (await running.get("/healthz", context=anonymous))[0] == 403


async def test_a_broken_authorizer_closes_pages_but_not_health(serve, anonymous, reviews):
    reviews.broken = ServerError("down")
    running = await serve(pages={"/metrics": hello})
    assert (await running.get("/healthz", context=anonymous))[0] == 200
    status, body, _ = await running.get("/metrics", context=anonymous)
    assert status == 500
    assert b'Internal Server Error: "/metrics": down' in body


async def test_without_delegation_pages_are_closed(serve, anonymous):
    running = await serve(pages={"/metrics": hello}, delegates=False)
    assert (await running.get("/metrics", context=anonymous))[0] == 403
    headers = {"Authorization": "Bearer any"}
    assert (await running.get("/healthz", context=anonymous, headers=headers))[0] == 200


async def test_a_page_that_breaks_is_a_500_without_its_secrets(serve, admin, trust):
    running = await serve(pages={"/broken": broken}, trust=trust)
    status, body, _ = await running.get("/broken", context=admin)
    assert status == 500
    assert b"secret" not in body
    assert (await running.get("/healthz", context=admin))[0] == 200


async def test_a_page_is_compressed_for_those_who_can_read_it(serve, admin, trust):
    registry = MetricsRegistry()
    for number in range(100):
        registry.counter(f"some_metric_number_{number}_total", "Help.")
    running = await serve(pages={"/metrics": MetricsPage(registry)}, trust=trust)
    headers = {"Accept-Encoding": "gzip"}
    _, body, got = await running.get(
        "/metrics", context=admin, headers=headers, skip_auto_headers=["Accept"]
    )
    plain = body if body.startswith(b"# HELP") else gzip.decompress(body)
    assert plain.decode() == registry.text()
    assert got["Content-Encoding"] == "gzip"
    _, body, got = await running.get(
        "/metrics", context=admin, headers={"Accept-Encoding": "identity"}
    )
    assert body.decode() == registry.text()
    assert "Content-Encoding" not in got


async def test_a_body_beyond_the_limit_is_refused(serve, admin, trust):
    running = await serve(prefixes={"/debug/": DebugPages()}, trust=trust)
    status, _, _ = await running.get(
        "/debug/flags/v", context=admin, method="PUT", data=b"1" * 100_000
    )
    assert status == 413


async def test_a_query_with_too_many_parts_is_refused(serve, anonymous):
    query = "&".join(f"exclude={n}" for n in range(100))
    status, _, _ = await (await serve()).get(f"/healthz?{query}", context=anonymous)
    assert status == 400


async def test_an_encoded_path_is_judged_by_what_it_means(serve, anonymous):
    running = await serve(pages={"/metrics": hello})
    for path in ("/%6Detrics", "/healthz/..%2Fmetrics", "//metrics", "/healthz/../metrics"):
        status, _, _ = await running.get(path, context=anonymous)
        assert status == 403, path


# Pages that come in pieces.


async def two_pieces(request):
    async def pieces():
        yield b"one "
        yield b"two"

    return Response(stream=pieces())


async def test_a_client_of_http_1_0_gets_a_page_in_pieces_until_the_connection_ends(
    serve, make_client
):
    running = await serve(pages={"/pieces": two_pieces}, open_paths=("/pieces",))
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", running.listener.port, ssl=make_client()
    )
    writer.write(b"GET /pieces HTTP/1.0\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.transport.abort()
    assert b" 200 " in head
    assert b"chunked" not in head.lower()
    assert body == b"one two"


async def test_head_of_a_page_in_pieces_has_no_body(serve, make_client):
    running = await serve(pages={"/pieces": two_pieces}, open_paths=("/pieces",))
    status, body, _ = await running.get("/pieces", method="HEAD", context=make_client())
    assert (status, body) == (200, b"")


async def test_a_page_that_breaks_off_cuts_its_connection_and_no_other(serve, make_client, caplog):
    async def breaks(request):
        async def pieces():
            yield b"one "
            raise RuntimeError("nothing more to say")

        return Response(stream=pieces())

    running = await serve(
        pages={"/breaks": breaks, "/pieces": two_pieces}, open_paths=("/breaks", "/pieces")
    )
    with pytest.raises(aiohttp.ClientError):
        await running.get("/breaks", context=make_client())
    status, body, _ = await running.get("/pieces", context=make_client())
    assert (status, body) == (200, b"one two")
    assert "A page broke off" in caplog.text
