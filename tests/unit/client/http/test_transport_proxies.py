"""Proxies: which one is chosen, the handshakes with it, and that its password stays out of
errors.
"""

from __future__ import annotations

import asyncio
import base64
import ssl

import pytest

from kubesched.base.errors import ConfigError, ConnectFailed
from kubesched.client.pool import HttpTransport
from kubesched.client.proxy import parse_proxy_url, proxy_from_environment
from kubesched.client.transport import AnonymousCredentials, ConnectionConfig, Request

GET = Request(method="GET", target="/api", deadline_s=5.0)


async def echo_target(peer):
    while True:
        request = await peer.read_request()
        await peer.answer(request.target.encode())


async def relay(peer, port: int) -> None:
    """Copies bytes both ways between the client and a local port until one side ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def copy(source, sink):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
        sink.close()

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(copy(peer.reader, writer))
            group.create_task(copy(reader, peer.writer))
    except* (ConnectionError, ssl.SSLError):
        pass
    finally:
        writer.close()


def connect_proxy(seen: list, *, refuse: str = ""):
    async def script(peer):
        request = await peer.read_request()
        seen.append(request)
        if refuse:
            await peer.answer(status=refuse)
            return
        await peer.write(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
        await relay(peer, int(request.target.rpartition(":")[2]))

    return script


async def test_https_goes_through_a_connect_tunnel(serve, connect, tls):
    seen = []
    server = await serve(echo_target, tls.server())
    proxy = await serve(connect_proxy(seen))
    transport = connect(
        server, context=tls.client(), proxy_url=f"http://user:p%40ss@127.0.0.1:{proxy.port}"
    )
    for _ in range(2):
        assert await (await transport.request(GET)).read() == b"/api"
    (request,) = seen
    assert (request.method, request.target) == ("CONNECT", f"127.0.0.1:{server.port}")
    expected = "Basic " + base64.b64encode(b"user:p@ss").decode()
    assert request.headers["proxy-authorization"] == expected


async def test_https_to_the_proxy_itself_carries_tls_within_tls(serve, connect, tls, monkeypatch):
    seen = []
    server = await serve(echo_target, tls.server())
    proxy = await serve(connect_proxy(seen), tls.server())
    monkeypatch.setenv("SSL_CERT_FILE", str(tls.authority.path))
    transport = connect(server, context=tls.client(), proxy_url=f"https://localhost:{proxy.port}")
    assert await (await transport.request(GET)).read() == b"/api"
    assert len(seen) == 1


async def test_plain_http_is_forwarded_with_the_whole_url(serve, connect):
    seen = []

    async def proxy_script(peer):
        seen.append(await peer.read_request())
        await peer.answer(b"forwarded")

    proxy = await serve(proxy_script)
    transport = connect(
        proxy, host="api.example.test", port=8080, proxy_url=f"http://u:p@127.0.0.1:{proxy.port}"
    )
    assert await (await transport.request(GET)).read() == b"forwarded"
    assert seen[0].target == "http://api.example.test:8080/api"
    assert seen[0].headers["host"] == "api.example.test:8080"
    assert "proxy-authorization" in seen[0].headers


async def test_refused_tunnel_names_the_proxy_and_not_its_password(serve, connect, tls):
    server = await serve(echo_target, tls.server())
    proxy = await serve(connect_proxy([], refuse="407 Proxy Authentication Required"))
    transport = connect(
        server, context=tls.client(), proxy_url=f"http://user:s3cret@127.0.0.1:{proxy.port}"
    )
    with pytest.raises(ConnectFailed, match=r"http proxy 127.0.0.1:\d+ refused .* 407") as caught:
        await transport.request(GET)
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(transport)


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"SSH-2.0-x\r\n\r\n", id="another protocol"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000, id="endless headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nsurprise", id="bytes behind the handshake"),
    ],
)
async def test_odd_replies_to_connect_are_refused(serve, connect, tls, reply):
    async def script(peer):
        await peer.read_request()
        await peer.write(reply)

    proxy = await serve(script)
    transport = connect(
        proxy, context=tls.client(), scheme="https", proxy_url=f"http://127.0.0.1:{proxy.port}"
    )
    with pytest.raises(ConnectFailed, match="http proxy"):
        await transport.request(GET)


async def test_proxy_of_the_environment_is_used_for_servers_elsewhere(serve):
    seen = []

    async def script(peer):
        seen.append(await peer.read_request())
        await peer.answer()

    proxy = await serve(script)
    transport = HttpTransport(
        ConnectionConfig(
            host="api.example.test", port=80, scheme="http", credentials=AnonymousCredentials()
        ),
        environ={"HTTP_PROXY": f"127.0.0.1:{proxy.port}"},
    )
    try:
        await transport.request(GET)
    finally:
        await transport.aclose()
    assert seen[0].target == "http://api.example.test:80/api"


@pytest.mark.parametrize(
    ("host", "no_proxy", "is_direct"),
    [
        pytest.param("api.test", "", False, id="nothing is exempt by default"),
        pytest.param("localhost", "", True, id="localhost always is"),
        pytest.param("127.0.0.7", "", True, id="loopback addresses always are"),
        pytest.param("::1", "", True, id="so is the IPv6 loopback"),
        pytest.param("api.test", "*", True, id="a star exempts everything"),
        pytest.param("api.test", "api.test", True, id="a name exempts itself"),
        pytest.param("API.test.", "api.test", True, id="case and final dot do not matter"),
        pytest.param("a.api.test", "api.test", True, id="a name exempts what is below it"),
        pytest.param("myapi.test", "api.test", False, id="but not what merely ends like it"),
        pytest.param("api.test", ".api.test", False, id="a leading dot leaves the name itself"),
        pytest.param("a.api.test", ".api.test", True, id="a leading dot exempts below"),
        pytest.param("a.api.test", "*.api.test", True, id="a leading star does the same"),
        pytest.param("api.test", "other, api.test:6443", True, id="a port must match"),
        pytest.param("api.test", "api.test:80", False, id="another port does not"),
        pytest.param("10.1.2.3", "10.0.0.0/8", True, id="a network exempts its addresses"),
        pytest.param("11.1.2.3", "10.0.0.0/8", False, id="but not others"),
        pytest.param("api.test", "10.0.0.0/8", False, id="nor names"),
        pytest.param("10.1.2.3", "10.1.2.3", True, id="an address exempts itself"),
        pytest.param("fd00::1", "[fd00::1]:6443", True, id="brackets separate IPv6 and port"),
        pytest.param("fd00::1", "fd00::1", True, id="a bare IPv6 address needs none"),
        pytest.param("api.test", "10.0.0.0/99,,", False, id="rubbish exempts nothing"),
    ],
)
def test_no_proxy_follows_gos_rules(host, no_proxy, is_direct):
    environ = {"HTTPS_PROXY": "http://proxy.test:3128", "NO_PROXY": no_proxy}
    proxy = proxy_from_environment("https", host, 6443, environ)
    assert (proxy is None) is is_direct


def test_lower_case_variables_count_too():
    environ = {"https_proxy": "http://proxy.test", "no_proxy": "other.test"}
    proxy = proxy_from_environment("https", "api.test", 443, environ)
    assert proxy is not None
    assert (proxy.scheme, proxy.host, proxy.port) == ("http", "proxy.test", 80)
    assert proxy_from_environment("https", "other.test", 443, environ) is None


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        pytest.param("ftp://user:s3cret@proxy.test", "scheme", id="an unknown scheme"),
        pytest.param("http://user:s3cret@:80", "names no host", id="no host"),
        pytest.param(
            "http://user:s3cret@proxy.test:port", "valid URL", id="a port that is no number"
        ),
        pytest.param("http://user:s3cret", "valid URL", id="a host that was forgotten"),
        pytest.param("http://[::1:s3cret", "valid URL", id="an unfinished bracket"),
        pytest.param(
            "socks5://user:s3cret@proxy.test",
            'scheme "socks5" is not supported, expected http or https',
            id="SOCKS5",
        ),
    ],
)
def test_bad_proxy_urls_are_configuration_errors_without_secrets(url, complaint):
    with pytest.raises(ConfigError, match=complaint) as caught:
        parse_proxy_url(url)
    assert "proxy-url" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_socks_proxy_of_the_environment_is_refused_by_the_name_of_the_variable():
    environ = {"HTTPS_PROXY": "socks5://proxy.test"}
    with pytest.raises(ConfigError, match=r'HTTPS_PROXY.* scheme "socks5" is not supported'):
        proxy_from_environment("https", "api.test", 6443, environ)


async def test_a_tunnel_to_a_server_that_is_not_trusted_fails_once(serve, connect, tls):
    """The loop reports the end of a connection that was never made."""
    reported = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    server = await serve(echo_target, tls.server())
    proxy = await serve(connect_proxy([]))
    url = f"http://127.0.0.1:{proxy.port}"
    transport = connect(server, context=tls.mistrusting_client(), proxy_url=url)
    with pytest.raises(ConnectFailed, match="cannot be trusted"):
        await transport.request(GET)
    for _ in range(5):
        await asyncio.sleep(0)
    assert [str(context.get("exception")) for context in reported] == []
