"""A control plane for one scheduler: etcd and kube-apiserver on loopback, in a temporary folder.

The programs come from a folder as laid out by setup-envtest (`$KUBEBUILDER_ASSETS`). There are no
controllers and no kubelets: the caller simulates them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from kubesched.base.certificates import write_private
from kubesched.base.errors import ApiError, KubeschedError, TransportError
from kubesched.client.client_config import load_config
from kubesched.client.pool import HttpTransport
from kubesched.client.rest import RestClient, user_agent
from kubesched.client.transport import AnonymousCredentials, ConnectionConfig
from kubesched.playground import pki

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 10.0
_POLL_S = 0.1
_DIE_WITH_PARENT = (sys.executable, "-I", "-S", str(Path(__file__).with_name("die_with_parent.py")))


class ControlPlaneError(KubeschedError):
    """A program is missing, does not start, or ended early; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Assets:
    """Paths of the programs."""

    etcd: Path
    kube_apiserver: Path
    kube_scheduler: Path


def find_assets(folder: str = "") -> Assets:
    """The programs in `folder`, or in `$KUBEBUILDER_ASSETS`.

    Raises:
        ControlPlaneError: no folder is given, or one of the programs is not in it.
    """
    given = folder or os.environ.get(ASSETS_VARIABLE, "")
    if not given:
        raise ControlPlaneError(
            f"a real control plane needs etcd, kube-apiserver and kube-scheduler: "
            f"name their folder with --assets or ${ASSETS_VARIABLE}"
        )
    root = Path(given).expanduser()
    names = ("etcd", "kube-apiserver", "kube-scheduler")
    missing = [name for name in names if not os.access(root / name, os.X_OK)]
    if missing:
        raise ControlPlaneError(f"{root} does not hold {', '.join(missing)}")
    return Assets(*(root / name for name in names))


GROUP_GATES = (
    "GenericWorkload",
    "TopologyAwareWorkloadScheduling",
    "PodGroupPreemptionPolicy",
    "CompositePodGroup",
)
GROUP_CLAIMS = "DRAWorkloadResourceClaims"
SERVES_GROUPS = (
    "--runtime-config=api/all=true",
    "--feature-gates=" + ",".join(f"{name}=true" for name in (*GROUP_GATES, GROUP_CLAIMS)),
    "--disable-admission-plugins=PodGroupProtection",  # no controller removes its finalizer here
)
"""Flags of an API server with pod groups."""


class Process:
    """A running program whose output goes to a file. It dies with this process, even if killed."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        running: asyncio.subprocess.Process,
        log: Path,
    ) -> None:
        self.name = name
        self._command = command
        self._running = running
        self._log = log

    @property
    def pid(self) -> int:
        return self._running.pid

    @classmethod
    async def start(cls, name: str, command: Sequence[str | Path], log: Path) -> Process:
        return cls(name, command, await cls._launch(command, log), log)

    @staticmethod
    async def _launch(command: Sequence[str | Path], log: Path) -> asyncio.subprocess.Process:
        with log.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *_DIE_WITH_PARENT,
                str(os.getpid()),
                *map(str, command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    async def kill(self) -> None:
        """Kill it."""
        if self._running.returncode is None:
            self._running.kill()
            await self._running.wait()

    async def restart(self) -> None:
        """Start it again with the same command, after it ended."""
        assert self._running.returncode is not None, f"{self.name} still runs"
        self._running = await self._launch(self._command, self._log)

    def check(self) -> None:
        """Raises `ControlPlaneError` if it is no longer running."""
        if self._running.returncode is not None:
            raise ControlPlaneError(
                f"{self.name} ended with {self._running.returncode}: {self.last_words()}"
            )

    def last_words(self) -> str:
        """The end of its log."""
        with contextlib.suppress(OSError):
            return "\n".join(self._log.read_text(errors="replace").splitlines()[-8:])
        return ""

    async def stop(self) -> None:
        """Terminate it, and kill it if necessary."""
        if self._running.returncode is not None:
            return
        self._running.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._running.wait()
        except TimeoutError:
            self._running.kill()
            await self._running.wait()


@dataclass(slots=True)
class ControlPlane:
    """A running API server, and how to reach it."""

    folder: Path
    url: str
    client: RestClient
    scheduler_kubeconfig: Path
    admin_kubeconfig: Path
    server: Process
    """The kube-apiserver process, for fault injection and resource measurement."""
    etcd: Process

    async def wait_until_ready(self) -> None:
        await _until_ready(self.client, (self.server,))


@contextlib.asynccontextmanager
async def control_plane(
    assets: Assets, folder: Path, *, api_server_flags: Sequence[str] = ()
) -> AsyncIterator[ControlPlane]:
    """A fresh control plane in an empty folder; a context manager."""
    etcd_port, peer_port, port = free_ports(3)
    made = pki.make(time.time())
    token = secrets.token_hex(16)
    files = _write_credentials(folder, made, token, port)
    async with contextlib.AsyncExitStack() as stack:
        etcd = await Process.start(
            "etcd", _etcd(assets, folder, etcd_port, peer_port), folder / "etcd.log"
        )
        stack.push_async_callback(etcd.stop)
        server = await Process.start(
            "kube-apiserver",
            [*_api_server(assets, folder, port, etcd_port), *api_server_flags],
            folder / "kube-apiserver.log",
        )
        stack.push_async_callback(server.stop)
        transport = HttpTransport(load_config(str(files["admin"])).connection)
        stack.push_async_callback(transport.aclose)
        client = RestClient(
            transport, user_agent=user_agent("control-plane"), random=Random(), deadline_s=30.0
        )
        await _until_ready(client, (etcd, server))
        url = f"https://127.0.0.1:{port}"
        yield ControlPlane(folder, url, client, files["scheduler"], files["admin"], server, etcd)


async def _until_ready(client: RestClient, processes: Sequence[Process]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            await client.get_raw("/readyz")
            await client.get_raw("/api/v1/namespaces/default")
        except (ApiError, TransportError) as error:
            for process in processes:
                process.check()
            if time.monotonic() > deadline:
                last_words = "\n".join(process.last_words() for process in processes)
                raise ControlPlaneError(
                    f"no API server after {START_TIMEOUT_S:.0f} s: {error}\n{last_words}"
                ) from error
            await asyncio.sleep(_POLL_S)
        else:
            return


def _etcd(assets: Assets, folder: Path, port: int, peer_port: int) -> list[str | Path]:
    mine, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return [
        assets.etcd,
        "--name=kubesched",
        f"--data-dir={folder / 'etcd'}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        f"--listen-client-urls={mine}",
        f"--advertise-client-urls={mine}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=kubesched={peer}",
    ]


def _api_server(assets: Assets, folder: Path, port: int, etcd_port: int) -> list[str | Path]:
    key = folder / "server.key"
    return [
        assets.kube_apiserver,
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--service-cluster-ip-range=10.0.0.0/16",
        f"--cert-dir={folder}",
        f"--tls-cert-file={folder / 'server.crt'}",
        f"--tls-private-key-file={key}",
        f"--client-ca-file={folder / 'ca.crt'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder / 'server.crt'}",
        f"--service-account-signing-key-file={key}",
        # No controller here makes service accounts or removes the taint of a new node; pods state
        # their own overhead.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,RuntimeClass",
        "--allow-privileged=true",
    ]


def _write_credentials(
    folder: Path, made: pki.Certificates, token: str, port: int
) -> dict[str, Path]:
    contents = {
        "ca.crt": made.ca_certificate,
        "server.crt": made.server_certificate,
        "server.key": made.server_key,
        "admin.crt": made.client_certificate,
        "admin.key": made.client_key,
        "tokens.csv": f"{token},system:kube-scheduler,scheduler\n".encode(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_private(folder / name, content)
    users = {
        "admin": {
            "client-certificate": str(folder / "admin.crt"),
            "client-key": str(folder / "admin.key"),
        },
        "scheduler": {"token": token},
    }
    written, url = {}, f"https://127.0.0.1:{port}"
    for name, user in users.items():
        config = pki.kubeconfig("kubesched", url, made.ca_certificate, name, user)
        written[name] = folder / f"{name}.kubeconfig"
        write_private(written[name], config)
    return written


def free_ports(count: int) -> list[int]:
    """Ports that are free on loopback at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]


@contextlib.asynccontextmanager
async def client_of_process(port: int) -> AsyncIterator[RestClient]:
    """A client for the pages of a scheduler that was just started here."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Loopback, with a self-signed certificate.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    credentials = AnonymousCredentials(context)
    connection = ConnectionConfig(host="127.0.0.1", port=port, credentials=credentials)
    transport = HttpTransport(connection, environ={})
    try:
        yield RestClient(transport, user_agent=user_agent("lab"), random=Random())
    finally:
        await transport.aclose()
