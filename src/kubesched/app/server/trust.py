"""Certificate authorities of clients and of front proxies.

They come from files given by flags, and from the cluster: kube-apiserver publishes its own in the
configmap `extension-apiserver-authentication`. A flag takes precedence over the same part of the
configmap. Both are reread every minute; if that fails, the last good value stays in use.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from kubesched.app.flags import RunOptions
from kubesched.base.errors import CredentialsError, KubeschedError, TransportError
from kubesched.base.logs import get_logger
from kubesched.client.rest import RestClient

log = get_logger(__name__)

CONFIGMAP_PATH: Final = (
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
)
REFRESH_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderNames:
    """Headers in which a trusted proxy names the user."""

    username: tuple[str, ...] = ("x-remote-user",)
    uid: tuple[str, ...] = ()
    group: tuple[str, ...] = ("x-remote-group",)
    extra_prefixes: tuple[str, ...] = ("x-remote-extra-",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The active authorities. An empty bundle disables that authentication method."""

    client_ca: str = ""
    """PEM; certificates issued by these authenticate a user."""
    proxy_ca: str = ""
    """PEM; certificates issued by these allow a proxy to name a user in headers."""
    proxy_names: tuple[str, ...] = ()
    """Common names allowed for such a proxy; empty allows any."""
    headers: HeaderNames = HeaderNames()


class TrustSource:
    """Reads the authorities and keeps them up to date."""

    def __init__(self, options: RunOptions, client: RestClient | None) -> None:
        """Reads the files.

        Raises:
            CredentialsError: a file cannot be used.
        """
        self._options = options
        self._client = None if options.authentication_skip_lookup else client
        self.current = self._from_files()

    async def load(self) -> None:
        """Read what the cluster publishes, for the first time.

        Raises:
            CredentialsError: the cluster cannot be reached and that is not tolerated.
        """
        if self._client is None:
            if not self._options.authentication_skip_lookup:
                self._warn_about_missing_lookup()
            return
        try:
            self.current = self._with_published(self.current, await self._fetch())
        except KubeschedError as error:
            if not self._options.authentication_tolerate_lookup_failure:
                raise CredentialsError(
                    f"unable to load configmap based request-header-client-ca-file: {error}"
                ) from error
            log.warning(
                "Unable to look up authentication configuration in the cluster; it is tried again",
                err=error,
            )

    def _warn_about_missing_lookup(self) -> None:
        where = "in configmap/extension-apiserver-authentication in kube-system, so {} won't work."
        for is_given, name, what in (
            (self._options.client_ca_file, "client-ca-file", "client certificate authentication"),
            (
                self._options.requestheader_client_ca_file,
                "requestheader-client-ca-file",
                "request-header client certificate authentication",
            ),
        ):
            if not is_given:
                log.warningf(
                    "No authentication-kubeconfig provided in order to lookup %s %s",
                    name,
                    where.format(what),
                )

    async def keep_current(self, on_change: Callable[[], None]) -> None:
        """Reread every minute until cancelled; call `on_change` after a change."""
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                trust = self._from_files()
                if self._client is not None:
                    trust = self._with_published(trust, await self._fetch())
            except KubeschedError as error:
                log.warning(
                    "Client authorities could not be read again; the last ones stay", err=error
                )
                continue
            if trust != self.current:
                log.info("Client authorities changed")
                self.current = trust
                on_change()

    def _from_files(self) -> Trust:
        options = self._options
        return Trust(
            client_ca=_read(options.client_ca_file, "client CA"),
            proxy_ca=_read(options.requestheader_client_ca_file, "request header CA"),
            proxy_names=options.requestheader_allowed_names,
            headers=HeaderNames(
                username=options.requestheader_username_headers,
                uid=options.requestheader_uid_headers,
                group=options.requestheader_group_headers,
                extra_prefixes=options.requestheader_extra_headers_prefix,
            ),
        )

    async def _fetch(self) -> dict[str, str]:
        assert self._client is not None, "the lookup needs a client"
        body = await self._client.get_raw(CONFIGMAP_PATH)
        try:
            return msgspec.json.decode(body, type=_ConfigMap).data
        except msgspec.DecodeError as error:
            raise TransportError(
                f"configmap extension-apiserver-authentication cannot be understood: {error}"
            ) from error

    def _with_published(self, trust: Trust, published: dict[str, str]) -> Trust:
        if not trust.client_ca:
            trust = replace(trust, client_ca=published.get("client-ca-file", ""))
        if not trust.proxy_ca and published.get("requestheader-client-ca-file"):
            trust = replace(
                trust,
                proxy_ca=published["requestheader-client-ca-file"],
                proxy_names=_names(published, "requestheader-allowed-names"),
                headers=HeaderNames(
                    username=_names(published, "requestheader-username-headers"),
                    uid=_names(published, "requestheader-uid-headers"),
                    group=_names(published, "requestheader-group-headers"),
                    extra_prefixes=_names(published, "requestheader-extra-headers-prefix"),
                ),
            )
        return trust


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


def _names(published: dict[str, str], key: str) -> tuple[str, ...]:
    """A list of strings, encoded as JSON."""
    try:
        names = json.loads(published.get(key) or "[]")
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TransportError(f"configmap extension-apiserver-authentication: {key} is not a list")
    return tuple(names)


def _read(path: str, what: str) -> str:
    if not path:
        return ""
    try:
        pem = Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not PEM"
        raise CredentialsError(f"unable to load {what} provider: {path}: {reason}") from error
    if "-----BEGIN CERTIFICATE-----" not in pem:
        raise CredentialsError(f"unable to load {what} provider: {path}: it holds no certificate")
    return pem
