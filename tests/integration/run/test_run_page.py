"""`kubesched run --page`: the page on the secure port, behind the same doors as the other debug
pages.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import aiohttp
import pytest
from page_columns import unpack
from page_servers import FLAGS, find_browser
from serving_requests import context, get

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: planned}
spec: {containers: [{name: a, image: b}]}
"""


def delegating(cluster):
    return (
        f"--authentication-kubeconfig={cluster.kubeconfig}",
        f"--authorization-kubeconfig={cluster.kubeconfig}",
    )


@pytest.fixture
async def admin(cluster, tmp_path):
    if cluster.real:
        return cluster.plane.folder / "admin.crt", cluster.plane.folder / "admin.key"
    made = cluster.embedded._certificates
    files = tmp_path / "admin.crt", tmp_path / "admin.key"
    files[0].write_bytes(made.client_certificate)
    files[1].write_bytes(made.client_key)
    return files


async def test_the_page_is_served_to_those_who_may_and_follows_the_scheduler(cluster, run, admin):
    await cluster.add_node("n1")
    scheduler = await run(*delegating(cluster), "--page")
    await cluster.add_pod("a")
    await cluster.bound("a")
    # The page itself has no data and is open, so that it can ask for a token.
    assert (await get(scheduler, "/debug/page/"))[0] == 200
    assert (await get(scheduler, "/debug/page/static/main.js"))[0] == 200
    for path in ("nodes", "meta", "events", "queue", "explain?pod=default/a", "placements"):
        assert (await get(scheduler, f"/debug/page/api/{path}"))[0] == 403  # anonymous
    origin = f"https://127.0.0.1:{scheduler.port}"
    connector = aiohttp.TCPConnector(ssl=context(admin), force_close=True)
    async with aiohttp.ClientSession(origin, connector=connector) as client:
        async with client.get("/debug/page/") as response:
            assert response.status == 200
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        async with client.get("/debug/page/api/nodes") as response:
            header, columns = unpack(await response.read())
            assert columns["requested pods"].tolist() == [1]
        async with client.get(f"/debug/page/api/events?since={header['id']}") as stream:
            await cluster.add_pod("b")
            await cluster.bound("b")
            async with asyncio.timeout(300):
                async for line in stream.content:
                    if line.startswith(b"data: ") and "nodes" in json.loads(line[6:]):
                        break
        async with client.get("/debug/page/api/explain?pod=default/a") as response:
            header, _ = unpack(await response.read())
            assert header["explanation"]["verdict"] == "Placed"
        headers = {"Content-Type": "application/json"}
        body = json.dumps({"yaml": POD})
        async with client.post("/debug/page/api/whatif", data=body, headers=headers) as response:
            assert response.status == 403  # no Origin
        headers["Origin"] = origin
        async with client.post("/debug/page/api/whatif", data=body, headers=headers) as response:
            answer = await response.json()
            assert [each["node"] for each in answer["plan"]["placed"]] == ["n1"]
        act = json.dumps({"action": "run", "commands": ["kubectl cordon n1"]})
        async with client.post("/debug/page/api/act", data=act, headers=headers) as response:
            assert response.status == 403


async def test_without_the_flag_there_is_no_page(cluster, run, admin):
    scheduler = await run(*delegating(cluster))
    await scheduler.says('"Successfully acquired lease"')
    assert (await get(scheduler, "/debug/page/", certificate=admin))[0] == 404


IDLE = int(os.environ.get("KUBESCHED_IDLE_STREAMS", "150"))
SLOW = int(os.environ.get("KUBESCHED_SLOW_STREAMS", "50"))


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["embedded"], indirect=True)
async def test_streams_that_are_hardly_read_keep_none_from_being_scheduled(cluster, run, admin):
    """Browsers ask for events and stop reading, or read a byte at a time; pods are placed and
    probes answered.
    """
    await cluster.add_node("n1", cpu="64")
    scheduler = await run(*delegating(cluster), "--page")
    await cluster.add_pod("before")
    await cluster.bound("before")
    empty = usage(scheduler.process.pid)
    streams, statuses = [], []

    async def open_stream():
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", scheduler.port, ssl=context(admin), limit=1
        )
        writer.write(b"GET /debug/page/api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        statuses.append((await reader.readexactly(12))[-3:])
        streams.append(writer)
        return reader

    async def read_slowly(reader):
        while True:
            if not await reader.read(1):
                return
            await asyncio.sleep(0.1)

    slow = [asyncio.create_task(read_slowly(await open_stream())) for _ in range(SLOW)]
    for _ in range(IDLE):
        await open_stream()
    names = [f"p{number}" for number in range(100)]
    for name in names:
        await cluster.add_pod(name, cpu="10m")
    assert await cluster.bound(*names) == ["n1"] * len(names)
    assert (await get(scheduler, "/livez"))[0] == 200
    assert sorted(set(statuses)) == [b"200", b"503"], statuses
    print(  # noqa: T201  # shown by -s
        f"{statuses.count(b'200')} of {SLOW + IDLE} streams served,"
        f" RSS and CPU {empty} before, {usage(scheduler.process.pid)} after"
    )
    for writer in streams:
        writer.transport.abort()
    for task in slow:  # what is buffered here would take another minute to read
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)
    assert scheduler.process.returncode is None


def usage(pid):
    """Resident memory and CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return f"{int(fields[21]) * os.sysconf('SC_PAGE_SIZE') >> 20} MB, {cpu_s:.1f} s"


async def page_token(cluster):
    """The token of an account with the role of the chart, as `kubectl create token` gets it."""
    rbac, role = "rbac.authorization.k8s.io", "kubesched:page-reader"
    rules = [
        {"nonResourceURLs": ["/debug/page", "/debug/page/*"], "verbs": ["get", "post"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    ]
    kinds = f"/apis/{rbac}/v1"
    await cluster.create(
        f"{kinds}/clusterroles",
        apiVersion=f"{rbac}/v1",
        kind="ClusterRole",
        metadata={"name": role},
        rules=rules,
    )
    accounts = "/api/v1/namespaces/kube-system/serviceaccounts"
    for name in ("kubesched-page", "other"):
        await cluster.create(
            accounts, apiVersion="v1", kind="ServiceAccount", metadata={"name": name}
        )
    await cluster.create(
        f"{kinds}/clusterrolebindings",
        apiVersion=f"{rbac}/v1",
        kind="ClusterRoleBinding",
        metadata={"name": role},
        roleRef={"apiGroup": rbac, "kind": "ClusterRole", "name": role},
        subjects=[{"kind": "ServiceAccount", "name": "kubesched-page", "namespace": "kube-system"}],
    )
    tokens = []
    for name in ("kubesched-page", "other"):
        answer = await cluster.create(
            f"{accounts}/{name}/token",
            apiVersion="authentication.k8s.io/v1",
            kind="TokenRequest",
            spec={"expirationSeconds": 3600},
        )
        tokens.append(answer["status"]["token"])
    return tokens


async def test_a_browser_opens_it_with_the_token_of_an_account(cluster, run):
    """`kubectl port-forward` and `kubectl create token`: the port is here, the token is pasted."""
    api = pytest.importorskip("playwright.async_api")
    browser_path = find_browser()
    await cluster.add_node("n1")
    scheduler = await run(*delegating(cluster), "--page")
    await cluster.add_pod("a")
    await cluster.bound("a")
    token, other = await page_token(cluster)
    # The embedded API server lets every known account do everything.
    refused = other if cluster.real else "nonsense"
    for given, status in ((token, 200), (other, 403 if cluster.real else 200), ("nonsense", 401)):
        headers = {"Authorization": f"Bearer {given}"}
        assert (await get(scheduler, "/debug/page/api/meta", headers=headers))[0] == status
    async with api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=browser_path, args=list(FLAGS))
        page = await browser.new_page(ignore_https_errors=True)
        page.set_default_timeout(30_000)
        await page.goto(f"https://127.0.0.1:{scheduler.port}/debug/page/#/map")
        await api.expect(page.locator("h2")).to_have_text("Who are you?", timeout=240_000)
        await page.get_by_label("Token").fill(refused)
        async with page.expect_response("**/api/meta") as response:
            await page.get_by_role("button", name="Open").click()
        assert (await response.value).status == (403 if cluster.real else 401)
        await api.expect(page.locator(".error")).not_to_be_empty(timeout=240_000)
        await page.get_by_label("Token").fill(token)
        await page.get_by_role("button", name="Open").click()
        await api.expect(page.locator(".summary")).to_contain_text("1 pod", timeout=240_000)
        await api.expect(page.locator(".live")).to_have_text("live", timeout=240_000)
        await cluster.add_pod("b")  # the stream takes the token along
        await api.expect(page.locator(".summary")).to_contain_text("2 pods", timeout=240_000)
        await page.reload()  # the token is kept for this tab
        await api.expect(page.locator(".summary")).to_contain_text("2 pods", timeout=240_000)
        fragment = '#/whatif?changes={"addNodes":{"n1":1}}'
        await page.evaluate("fragment => { location.hash = fragment }", fragment)
        await api.expect(page.locator(".summary")).to_contain_text("1 node added", timeout=240_000)
        await browser.close()
