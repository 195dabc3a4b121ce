"""Client authorities: from files, from the cluster's configmap, which one wins, and what happens
when neither works.
"""

import asyncio
import json

import pytest

from kubesched.app.flags import RunOptions
from kubesched.app.server import trust as trust_module
from kubesched.app.server.trust import HeaderNames, TrustSource
from kubesched.base.errors import CredentialsError, ServerError


class FakeCluster:
    def __init__(self, **data):
        self.data = data
        self.broken = None
        self.read = 0
        self.was_read = asyncio.Event()

    async def reads(self, count):
        for _ in range(count):
            self.was_read.clear()
            await self.was_read.wait()

    async def get_raw(self, path):
        self.read += 1
        self.was_read.set()
        assert path.endswith("/configmaps/extension-apiserver-authentication")
        if self.broken is not None:
            raise self.broken
        return json.dumps({"kind": "ConfigMap", "data": self.data}).encode()


@pytest.fixture
def ca_file(tmp_path, certificates):
    path = tmp_path / "ca.crt"
    path.write_bytes(certificates.ca_certificate)
    return path


PUBLISHED = {
    "client-ca-file": "published client CA",
    "requestheader-client-ca-file": "published proxy CA",
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-uid-headers": "[]",
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}


async def loaded(settings, cluster):
    source = TrustSource(settings, cluster)
    await source.load()
    return source.current


async def test_everything_comes_from_the_cluster_when_no_file_is_named():
    trust = await loaded(RunOptions(), FakeCluster(**PUBLISHED))
    assert trust.client_ca == "published client CA"
    assert trust.proxy_ca == "published proxy CA"
    assert trust.proxy_names == ("front-proxy-client",)
    assert trust.headers == HeaderNames(
        username=("X-Remote-User",), group=("X-Remote-Group",), extra_prefixes=("X-Remote-Extra-",)
    )


async def test_a_file_wins_over_the_cluster(ca_file):
    settings = RunOptions(client_ca_file=str(ca_file))
    trust = await loaded(settings, FakeCluster(**PUBLISHED))
    assert trust.client_ca == ca_file.read_text()
    assert trust.proxy_ca == "published proxy CA"


async def test_a_cluster_without_a_front_proxy_leaves_proxies_untrusted():
    trust = await loaded(RunOptions(), FakeCluster(**{"client-ca-file": "x"}))
    assert trust.proxy_ca == ""


async def test_the_lookup_can_be_skipped():
    cluster = FakeCluster(**PUBLISHED)
    trust = await loaded(RunOptions(authentication_skip_lookup=True), cluster)
    assert trust.client_ca == ""
    assert cluster.read == 0


async def test_a_failing_lookup_is_tolerated_by_default():
    cluster = FakeCluster()
    cluster.broken = ServerError("down")
    assert (await loaded(RunOptions(), cluster)).client_ca == ""


async def test_a_failing_lookup_ends_the_start_when_asked():
    cluster = FakeCluster()
    cluster.broken = ServerError("down")
    with pytest.raises(CredentialsError, match="down"):
        await loaded(RunOptions(authentication_tolerate_lookup_failure=False), cluster)


async def test_a_malformed_list_is_a_failed_lookup():
    cluster = FakeCluster(**(PUBLISHED | {"requestheader-allowed-names": "front-proxy"}))
    with pytest.raises(CredentialsError, match="requestheader-allowed-names is not a list"):
        await loaded(RunOptions(authentication_tolerate_lookup_failure=False), cluster)


async def test_a_file_that_cannot_be_read_ends_the_start(tmp_path):
    with pytest.raises(
        CredentialsError, match=r"unable to load client CA provider: .*No such file"
    ):
        await loaded(RunOptions(client_ca_file=str(tmp_path / "nope")), None)


async def test_a_file_without_a_certificate_ends_the_start(tmp_path):
    path = tmp_path / "empty"
    path.write_text("nothing here")
    with pytest.raises(CredentialsError, match="holds no certificate"):
        await loaded(RunOptions(client_ca_file=str(path)), None)


async def test_changes_are_taken_up_and_failures_leave_things_as_they_are(monkeypatch):
    monkeypatch.setattr(trust_module, "REFRESH_S", 0.0)
    cluster = FakeCluster(**PUBLISHED)
    source = TrustSource(RunOptions(), cluster)
    await source.load()
    changed = asyncio.Event()
    keeping = asyncio.ensure_future(source.keep_current(changed.set))
    try:
        cluster.broken = ServerError("down")
        await cluster.reads(3)
        assert source.current.client_ca == "published client CA"
        assert not changed.is_set()
        cluster.broken = None
        cluster.data["client-ca-file"] = "rotated"
        await asyncio.wait_for(changed.wait(), 10)
        assert source.current.client_ca == "rotated"
    finally:
        keeping.cancel()
