"""Exec plugins: real scripts are run, told what they must know, believed within limits, and never
quoted.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from processes import is_running, until

from kubesched.base.errors import CredentialsError
from kubesched.client.client_config import load_config
from kubesched.client.credentials import FAILURE_PAUSE_S, RENEWAL_PAUSE_S, ClientCredentials
from kubesched.client.exec_plugin import ExecCluster, ExecPlugin, printable, redact
from kubesched.client.kubeconfig import ExecConfig, ExecEnvVar
from kubesched.client.tls_context import Pem, RotatingTls, TlsSettings

V1 = "client.authentication.k8s.io/v1"
SECRET = "hunter2-secret-value"
CLUSTER = ExecCluster(server="https://a.test:6443")


@pytest.fixture
def plugin(clock, tmp_path):
    """Build the identity around a command."""

    def build(command: str, *, deadline_s: float = 30.0, cluster=CLUSTER, **config) -> ExecPlugin:
        settings = {"api_version": V1, "interactive_mode": "Never", **config}
        return ExecPlugin(
            ExecConfig(command=command, **settings),
            cluster=cluster,
            origin='kubeconfig /k: context "a": user "a"',
            clock=clock,
            environment={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            deadline_s=deadline_s,
        )

    return build


def counting(script: str, counter: Path) -> str:
    """A script that adds a line to a file each time it runs."""
    return f"echo run >> {counter}\n{script}"


def read(path: str) -> str:
    return Path(path).read_text()


def runs(counter: Path) -> int:
    return len(counter.read_text().splitlines()) if counter.exists() else 0


# What comes back


async def test_token_is_sent_as_bearer(plugin, write_plugin, exec_credential):
    identity = plugin(write_plugin(f"echo '{exec_credential(token='abc')}'"))
    assert (await identity.current()).authorization == "Bearer abc"


async def test_v1beta1_is_understood(plugin, write_plugin, exec_credential):
    script = f"echo '{exec_credential('v1beta1', token='abc')}'"
    identity = plugin(write_plugin(script), api_version=f"{V1}beta1")
    assert (await identity.current()).authorization == "Bearer abc"


async def test_client_certificate_is_presented_and_rotated(
    plugin, write_plugin, exec_credential, authority, clock, tmp_path
):
    answer = tmp_path / "answer"
    identity = plugin(write_plugin(f"cat {answer}"))
    credentials = ClientCredentials(
        clock=clock,
        identity=identity,
        tls=RotatingTls(TlsSettings(ca=Pem("ca", data=authority.certificate))),
    )
    bare = credentials.ssl_context()
    for round_number in (1, 2):
        issued = authority.issue(f"round {round_number}")
        answer.write_text(
            exec_credential(
                clientCertificateData=issued.certificate.decode(),
                clientKeyData=issued.key.decode(),
                expirationTimestamp=datetime.fromtimestamp(clock.now() + 60, UTC).isoformat(),
            )
        )
        assert await credentials.headers() == {}
        assert credentials.generation == round_number
        assert credentials.ssl_context() is not bare
        clock.advance(61)
    answer.write_text(exec_credential(token="only a token".replace(" ", "-")))
    assert await credentials.headers() == {"Authorization": "Bearer only-a-token"}
    assert credentials.generation == 3, "the certificate is withdrawn"


async def test_a_certificate_that_does_not_fit_its_key_is_refused(
    plugin, write_plugin, exec_credential, authority, clock, tmp_path
):
    answer = tmp_path / "answer"
    answer.write_text(
        exec_credential(
            clientCertificateData=authority.issue("me").certificate.decode(),
            clientKeyData=authority.issue("you").key.decode(),
        )
    )
    credentials = ClientCredentials(
        clock=clock,
        identity=plugin(write_plugin(f"cat {answer}")),
        tls=RotatingTls(TlsSettings(insecure=True)),
    )
    with pytest.raises(
        CredentialsError, match=r"clientCertificateData .*does not belong"
    ) as caught:
        await credentials.headers()
    assert "PRIVATE KEY" not in str(caught.value)


# What it is told


async def test_the_plugin_learns_version_interactivity_and_environment(
    plugin, write_plugin, exec_credential, tmp_path
):
    seen = tmp_path / "seen"
    script = f"""
printf '%s' "$KUBERNETES_EXEC_INFO" > {seen}.info
printf '%s|%s|%s' "$EXTRA" "$HOME" "$*" > {seen}.env
cat > {seen}.tty
echo '{exec_credential(token="abc")}'"""
    identity = plugin(
        write_plugin(script), env=[ExecEnvVar(name="EXTRA", value="x y")], args=["one", "two words"]
    )
    await identity.current()
    assert json.loads(read(f"{seen}.info")) == {
        "kind": "ExecCredential",
        "apiVersion": V1,
        "spec": {"interactive": False},
    }
    assert read(f"{seen}.env") == f"x y|{tmp_path}|one two words"
    assert read(f"{seen}.tty") == "", "standard input is empty"


async def test_the_plugin_learns_about_the_cluster_only_if_it_asks(
    write_plugin, write_config, exec_credential, tmp_path, authority
):
    seen = tmp_path / "seen"
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    script = (
        f"""printf '%s' "$KUBERNETES_EXEC_INFO" > {seen}\necho '{exec_credential(token="abc")}'"""
    )
    cluster = {
        "server": "https://a.test:6443",
        "certificate-authority": "ca.crt",
        "tls-server-name": "inner",
        "proxy-url": "http://proxy.test:1",
        "disable-compression": True,
        "extensions": [
            {"name": "another.vendor", "extension": {"a": 1}},
            {
                "name": "client.authentication.k8s.io/exec",
                "extension": {"audience": "x", "none": None},
            },
        ],
    }
    for asks, expected in (
        (False, None),
        (
            True,
            {
                "server": "https://a.test:6443",
                "tls-server-name": "inner",
                "certificate-authority-data": base64.b64encode(authority.certificate).decode(),
                "proxy-url": "http://proxy.test:1",
                "disable-compression": True,
                "config": {"audience": "x", "none": None},
            },
        ),
    ):
        user = {
            "exec": {
                "command": write_plugin(script),
                "apiVersion": V1,
                "interactiveMode": "IfAvailable",
                "provideClusterInfo": asks,
            }
        }
        config = load_config(
            write_config("a", cluster=cluster, user=user), environment={"PATH": os.environ["PATH"]}
        )
        await config.connection.credentials.headers()
        assert json.loads(seen.read_text())["spec"].get("cluster") == expected


async def test_a_relative_command_is_found_beside_its_kubeconfig(
    write_plugin, write_config, exec_credential
):
    path = Path(write_plugin(f"echo '{exec_credential(token='abc')}'", "beside"))
    user = {"exec": {"command": f"./{path.name}", "apiVersion": V1, "interactiveMode": "Never"}}
    config = load_config(write_config("a", user=user), environment={})
    assert await config.connection.credentials.headers() == {"Authorization": "Bearer abc"}


# When it runs


async def test_a_credential_without_expiry_is_kept(
    plugin, write_plugin, exec_credential, clock, tmp_path
):
    counter = tmp_path / "count"
    identity = plugin(write_plugin(counting(f"echo '{exec_credential(token='abc')}'", counter)))
    first = await identity.current()
    clock.advance(86400)
    assert await identity.current() is first
    assert runs(counter) == 1


async def test_an_expired_credential_is_replaced(
    plugin, write_plugin, exec_credential, clock, tmp_path
):
    answer = tmp_path / "answer"
    identity = plugin(write_plugin(f"cat {answer}"))
    expiry = datetime.fromtimestamp(clock.now() + 60, UTC).isoformat().replace("+00:00", "Z")
    answer.write_text(exec_credential(token="one", expirationTimestamp=expiry))
    assert (await identity.current()).authorization == "Bearer one"
    answer.write_text(exec_credential(token="two"))
    clock.advance(60)
    assert (await identity.current()).authorization == "Bearer one", "good until the second itself"
    clock.advance(1)
    assert (await identity.current()).authorization == "Bearer two"


async def test_many_requests_run_it_once(plugin, write_plugin, exec_credential, tmp_path):
    counter = tmp_path / "count"
    identity = plugin(write_plugin(counting(f"echo '{exec_credential(token='abc')}'", counter)))
    proofs = await asyncio.gather(*(identity.current() for _ in range(20)))
    assert {proof.authorization for proof in proofs} == {"Bearer abc"}
    assert runs(counter) == 1


async def test_a_refused_credential_is_replaced_but_not_for_every_request(
    plugin, write_plugin, exec_credential, clock, tmp_path
):
    counter, answer = tmp_path / "count", tmp_path / "answer"
    answer.write_text(exec_credential(token="one"))
    identity = plugin(write_plugin(counting(f"cat {answer}", counter)))
    await identity.current()
    answer.write_text(exec_credential(token="two"))
    assert all(await asyncio.gather(*(identity.renew() for _ in range(5))))
    assert (await identity.current()).authorization == "Bearer two"
    assert runs(counter) == 2
    assert not await identity.renew(), "too soon to run it again"
    assert runs(counter) == 2
    clock.advance(RENEWAL_PAUSE_S)
    assert not await identity.renew(), "ran, but it has nothing new"
    assert runs(counter) == 3


async def test_a_failure_after_a_refusal_keeps_what_we_have(
    plugin, write_plugin, exec_credential, tmp_path, told
):
    answer = tmp_path / "answer"
    answer.write_text(exec_credential(token="one"))
    identity = plugin(write_plugin(f"cat {answer}"))
    await identity.current()
    answer.unlink()
    assert not await identity.renew()
    assert "not renewed after the server refused" in told()
    assert (await identity.current()).authorization == "Bearer one"


async def test_a_failing_plugin_is_not_started_for_every_request(
    plugin, write_plugin, clock, tmp_path
):
    counter = tmp_path / "count"
    identity = plugin(write_plugin(counting("exit 3", counter)))
    for _ in range(5):
        with pytest.raises(CredentialsError, match="failed with exit code 3"):
            await identity.current()
    assert runs(counter) == 1
    clock.advance(FAILURE_PAUSE_S)
    with pytest.raises(CredentialsError):
        await identity.current()
    assert runs(counter) == 2


# What is refused


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        pytest.param("", "standard output is not an ExecCredential in JSON", id="nothing"),
        pytest.param(f"token: {SECRET}", "not an ExecCredential in JSON", id="no JSON"),
        pytest.param("[]", "not an ExecCredential in JSON", id="another shape"),
        pytest.param(
            json.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": {"token": [SECRET]}}),
            "not an ExecCredential in JSON (at `$.status.token`)",
            id="a list for a token",
        ),
        pytest.param(
            json.dumps(
                {"kind": "ExecCredential", "apiVersion": f"{V1}beta1", "status": {"token": SECRET}}
            ),
            f'configured to use API version {V1}, but the plugin returned kind "ExecCredential" '
            f'of version "{V1}beta1"',
            id="another version",
        ),
        pytest.param(
            json.dumps({"kind": "Other", "apiVersion": V1}),
            'returned kind "Other"',
            id="another kind",
        ),
        pytest.param(
            json.dumps({"kind": "ExecCredential", "apiVersion": V1}),
            "did not return a status",
            id="no status",
        ),
        pytest.param(
            json.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": {}}),
            "did not return a token or a certificate",
            id="empty status",
        ),
        pytest.param(
            json.dumps(
                {"kind": "ExecCredential", "apiVersion": V1, "status": {"clientKeyData": SECRET}}
            ),
            "only a certificate or only a key",
            id="a key alone",
        ),
        pytest.param(
            json.dumps(
                {
                    "kind": "ExecCredential",
                    "apiVersion": V1,
                    "status": {"token": f"{SECRET}\r\nX: y"},
                }
            ),
            "token contains characters that cannot be sent",
            id="a token with a line break",
        ),
        pytest.param(
            json.dumps(
                {
                    "kind": "ExecCredential",
                    "apiVersion": V1,
                    "status": {"token": SECRET, "expirationTimestamp": "soon"},
                }
            ),
            "(at `$.status.expirationTimestamp`)",
            id="an expiry that is no time",
        ),
    ],
)
async def test_nonsense_is_refused_without_being_shown(
    plugin, write_plugin, tmp_path, output, expected
):
    answer = tmp_path / "answer"
    answer.write_text(output)
    with pytest.raises(CredentialsError) as caught:
        await plugin(write_plugin(f"cat {answer}")).current()
    assert str(caught.value).startswith('kubeconfig /k: context "a": user "a": exec plugin: ')
    assert expected in str(caught.value)
    assert SECRET not in str(caught.value)


async def test_a_missing_program_shows_the_hint(plugin):
    identity = plugin("no-such-plugin", install_hint="brew install \x1b[1mit\x1b[0m")
    with pytest.raises(CredentialsError) as caught:
        await identity.current()
    assert str(caught.value).endswith(
        "executable no-such-plugin not found; brew install U+001B[1mitU+001B[0m"
    )


async def test_a_file_that_is_no_program_is_an_error(plugin, tmp_path):
    path = tmp_path / "data"
    path.write_text("x")
    with pytest.raises(CredentialsError, match="data is not an executable file"):
        await plugin(str(path)).current()


async def test_a_program_the_system_cannot_start_is_an_error(plugin, tmp_path):
    path = tmp_path / "broken"
    path.write_bytes(b"\x7fELF but not really")
    path.chmod(0o700)
    with pytest.raises(CredentialsError, match=r"cannot run .*broken"):
        await plugin(str(path)).current()


async def test_the_end_of_standard_error_is_shown_without_secrets(plugin, write_plugin):
    jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl"
    script = f"""
echo "old noise" >&2
echo "login failed for $WHO with {jwt}, password={SECRET}, Bearer abc.def and $1" >&2
exit 1"""
    identity = plugin(
        write_plugin(script), env=[ExecEnvVar(name="WHO", value="jane-doe")], args=["--pin=9876"]
    )
    with pytest.raises(CredentialsError) as caught:
        await identity.current()
    message = str(caught.value)
    assert (
        "failed with exit code 1: old noise\nlogin failed for [redacted] with [redacted]" in message
    )
    for secret in (jwt, SECRET, "abc.def", "jane-doe", "9876"):
        assert secret not in message


async def test_a_flood_on_standard_error_does_no_harm(plugin, write_plugin):
    script = "head -c 3000000 /dev/zero | tr '\\0' 'x' >&2; echo >&2; echo 'the end' >&2; exit 1"
    with pytest.raises(CredentialsError) as caught:
        await plugin(write_plugin(script)).current()
    assert str(caught.value).endswith("the end")
    assert len(str(caught.value)) < 4000


async def test_a_flood_on_standard_output_is_cut_off(plugin, write_plugin):
    with pytest.raises(CredentialsError, match="printed more than 1048576 bytes"):
        await plugin(write_plugin("yes")).current()


async def test_a_plugin_that_hangs_is_ended_with_its_children(plugin, write_plugin, tmp_path):
    pids = tmp_path / "pids"
    script = f"sleep 1000 & echo $! >> {pids}; echo $$ >> {pids}; wait"
    with pytest.raises(CredentialsError, match=r"did not finish within 2 s"):
        await plugin(write_plugin(script), deadline_s=2.0).current()
    child, shell = map(int, pids.read_text().split())
    assert not is_running(shell)
    await until(lambda: not is_running(child))  # killed, but not a child of this process


async def test_giving_up_on_a_request_ends_its_plugin(plugin, write_plugin, tmp_path):
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    identity = plugin(write_plugin(f"echo $$ > {pids}; sleep 1000"))
    waiting = asyncio.create_task(identity.current())
    pid = int(await asyncio.to_thread(pids.read_text))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not is_running(pid)


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN PRIVATE KEY-----\nMIGH\n-----END PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\ncut off here MIGH",
        "Authorization: Bearer MIGH",
        "client_secret = MIGH",
        "'token': 'MIGH'",
        "MIGH" * 12,
    ],
)
def test_what_looks_like_a_secret_is_cut_out(text):
    assert "MIGH" not in redact(f"before {text} after", [])


def test_plain_words_survive():
    assert redact("could not reach the identity provider at 10.0.0.1:443", []) == (
        "could not reach the identity provider at 10.0.0.1:443"
    )


def test_terminal_codes_are_spelled_out():
    assert printable("a\x1b[31mb\nc\td\u202e") == "aU+001B[31mb\nc\tdU+202E"
