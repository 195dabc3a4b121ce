"""Credentials from exec plugins (`client.authentication.k8s.io` v1 and v1beta1), as in client-go.

Runs the command, passes it the cluster information, and reads the `ExecCredential` it prints.
`credentials.RenewedIdentity` decides when to run it, one at a time. The plugin never gets a
terminal: a scheduler cannot prompt.

A plugin's output is secret. Its standard output never appears in a message; of its standard error
the last lines do, without anything that looks like a token or a key or was passed in as a setting.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from kubesched.base.clock import Clock
from kubesched.base.errors import CredentialsError
from kubesched.base.logs import get_logger
from kubesched.client.credentials import Proof, RenewedIdentity, is_sendable
from kubesched.client.kubeconfig import ExecConfig

log = get_logger(__name__)

API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

RUN_DEADLINE_S = 60.0
"""Longest run of a plugin. client-go has no limit; our requests have deadlines."""

END_DEADLINE_S = 5.0
"""Longest wait for a killed plugin to exit; only one stuck in the kernel takes longer."""

MAX_OUTPUT_BYTES = 1024 * 1024
"""Most bytes read from a plugin; a certificate chain with its key is a few kilobytes."""

SHOWN_ERROR_BYTES = 2048
"""How much of the end of standard error an error message shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecCluster:
    """The cluster information for plugins with `provideClusterInfo`."""

    server: str
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority_data: bytes = field(default=b"", repr=False)
    proxy_url: str = field(default="", repr=False)
    disable_compression: bool = False
    config: object = None

    def to_json(self) -> dict[str, object]:
        authority = base64.b64encode(self.certificate_authority_data).decode()
        optional = {
            "tls-server-name": self.tls_server_name,
            "insecure-skip-tls-verify": self.insecure_skip_tls_verify,
            "certificate-authority-data": authority,
            "proxy-url": self.proxy_url,
            "disable-compression": self.disable_compression,
        }
        given = {name: value for name, value in optional.items() if value}
        # Go writes an absent raw extension as null.
        return {"server": self.server, **given, "config": self.config}


class _Status(msgspec.Struct, rename="camel"):
    expiration_timestamp: datetime | None = None
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


class ExecPlugin(RenewedIdentity):
    """An identity provided by a program."""

    def __init__(
        self,
        config: ExecConfig,
        *,
        cluster: ExecCluster,
        origin: str,
        clock: Clock,
        environment: Mapping[str, str],
        deadline_s: float = RUN_DEADLINE_S,
    ) -> None:
        """Checks the settings without running the plugin; `origin` begins every error."""
        super().__init__(clock)
        self._config = config
        self._origin = origin
        self._deadline_s = deadline_s
        if config.api_version not in API_VERSIONS:
            raise self._error(
                f'invalid apiVersion "{config.api_version}"; supported are '
                f"{' and '.join(API_VERSIONS)}"
            )
        if config.interactive_mode == "Always":
            raise self._error(
                "interactiveMode Always needs a terminal to ask on, and there is none; "
                "use a plugin that works with interactiveMode Never or IfAvailable"
            )
        self._environment = {
            **environment,
            **{variable.name: variable.value for variable in config.env},
            "KUBERNETES_EXEC_INFO": self._exec_info(cluster),
        }

    async def _obtain(self) -> tuple[Proof, float | None]:
        return self._parse(await self._run())

    async def _run(self) -> bytes:
        command = self._resolve()
        capture = _Capture(asyncio.get_running_loop())
        try:
            process = await _start(capture, command, self._config.args, self._environment)
        except OSError as error:
            raise self._error(f"cannot run {command}: {error.strerror}") from error
        try:
            async with asyncio.timeout(self._deadline_s):
                await asyncio.wait([capture.enough])
        except TimeoutError:
            raise self._error(
                f"executable {command} did not finish within {self._deadline_s:g} s"
            ) from None
        finally:
            await _end(process, capture)
        if len(capture.output) > MAX_OUTPUT_BYTES:
            raise self._error(f"executable {command} printed more than {MAX_OUTPUT_BYTES} bytes")
        said = self._shown(capture.complaint)
        if code := process.get_returncode():
            reason = f"failed with exit code {code}" + (f": {said}" if said else "")
            raise self._error(f"executable {command} {reason}")
        if said:
            log.info("Exec plugin wrote to standard error", command=command, text=said)
        return bytes(capture.output)

    def _resolve(self) -> str:
        command = self._config.command
        path = shutil.which(command)
        if path is not None:
            return path
        if os.path.exists(command) and os.sep in command:
            raise self._error(f"{command} is not an executable file")
        hint = f"; {printable(self._config.install_hint)}" if self._config.install_hint else ""
        raise self._error(f"executable {command} not found{hint}")

    def _exec_info(self, cluster: ExecCluster) -> str:
        spec: dict[str, Any] = {"interactive": False}
        if self._config.provide_cluster_info:
            spec["cluster"] = cluster.to_json()
        info = {"kind": "ExecCredential", "apiVersion": self._config.api_version, "spec": spec}
        try:
            return msgspec.json.encode(info).decode()
        except (TypeError, ValueError, RecursionError) as error:
            raise self._error(
                "the cluster's extension client.authentication.k8s.io/exec cannot be written as "
                "JSON"
            ) from error

    def _parse(self, output: bytes) -> tuple[Proof, float | None]:
        try:
            credential = msgspec.json.decode(output, type=_ExecCredential)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            # The decoder's message may quote the output.
            where = re.search(r"at `[^`]*`$", str(error))
            raise self._error(
                "the plugin's standard output is not an ExecCredential in JSON"
                + (f" ({where.group()})" if where else "")
            ) from None
        expected = self._config.api_version
        if credential.kind != "ExecCredential" or credential.api_version != expected:
            raise self._error(
                f"configured to use API version {expected}, but the plugin returned "
                f'kind "{printable(credential.kind)}" of version '
                f'"{printable(credential.api_version)}"'
            )
        status = credential.status
        if status is None:
            raise self._error("the plugin did not return a status field")
        token, certificate = status.token or "", status.client_certificate_data or ""
        key = status.client_key_data or ""
        if not token and not certificate and not key:
            raise self._error("the plugin did not return a token or a certificate with its key")
        if bool(certificate) != bool(key):
            raise self._error("the plugin returned only a certificate or only a key, not both")
        if not is_sendable(token):
            raise self._error("the plugin's token contains characters that cannot be sent")
        expiry = status.expiration_timestamp
        proof = Proof(f"Bearer {token}" if token else "", certificate.encode(), key.encode())
        return proof, expiry.timestamp() if expiry is not None else None

    def _shown(self, complaint: bytes) -> str:
        text = complaint[-SHOWN_ERROR_BYTES:].decode("utf-8", "replace")
        secrets = [variable.value for variable in self._config.env] + self._config.args
        text = redact(text, [secret for secret in secrets if len(secret) > 3])
        return printable(text.strip())

    def _error(self, message: str) -> CredentialsError:
        return CredentialsError(f"{self._origin}: exec plugin: {message}")


class _Capture(asyncio.SubprocessProtocol):
    """Collects standard output up to its limit and the end of standard error."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.output = bytearray()
        self.complaint = b""
        self.enough: asyncio.Future[None] = loop.create_future()
        """Done when the process has ended and its pipes are closed, or when it printed too much."""
        self.ended: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.complaint = (self.complaint + data)[-SHOWN_ERROR_BYTES:]
        elif len(self.output) <= MAX_OUTPUT_BYTES:
            self.output += data
            if len(self.output) > MAX_OUTPUT_BYTES:
                self.enough.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.enough.done():
            self.enough.set_result(None)
        self.ended.set_result(None)


async def _start(
    capture: _Capture, command: str, args: list[str], environment: Mapping[str, str]
) -> asyncio.SubprocessTransport:
    starting = asyncio.ensure_future(
        asyncio.get_running_loop().subprocess_exec(
            lambda: capture,
            command,
            *args,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # so that ending it ends its children too
        )
    )
    try:
        await asyncio.wait([starting])
    except asyncio.CancelledError:
        # Cancelling a start half-way leaks the process and its pipes: let it start, then kill it.
        await asyncio.wait([starting])
        if starting.exception() is None:
            await _end(starting.result()[0], capture)
        raise
    return starting.result()[0]


async def _end(process: asyncio.SubprocessTransport, capture: _Capture) -> None:
    """Kill the plugin with all its children."""
    if process.get_returncode() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.get_pid(), signal.SIGKILL)
    process.close()
    await asyncio.wait([capture.ended], timeout=END_DEADLINE_S)


_SECRET = re.compile(
    r"-----BEGIN [A-Z ]*-----.*?(?:-----END [A-Z ]*-----|\Z)"  # PEM blocks, also cut off
    r"|eyJ[\w-]+\.[\w-]*(?:\.[\w-]*)*"  # JSON web tokens
    r"|(?i:bearer|basic)\s+\S+"
    r"|(?i:(?:token|secret|password|passwd|key)\w*[\"']?\s*[:=]\s*)\S+"
    r"|[A-Za-z0-9+/_=-]{40,}",  # anything long enough to be a key and too long to be a word
    re.DOTALL,
)


def redact(text: str, secrets: list[str]) -> str:
    """`text` without the given secrets and without anything that looks like one."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "[redacted]")
    return _SECRET.sub("[redacted]", text)


def printable(text: str) -> str:
    """`text` safe for a terminal: control characters and colour codes become code points."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else f"U+{ord(character):04X}"
        for character in text
    )
