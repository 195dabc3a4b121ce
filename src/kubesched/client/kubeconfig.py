"""Kubeconfig files: parsing and merging.

Reads the YAML into records with errors that name file and field, merges files (`KUBECONFIG` may
list several; the first value wins), and resolves relative paths against their file. `client_config`
chooses the context and checks it.

Unknown fields are ignored, as in kubectl. Records show no contents in their `repr`, and errors
never quote a value: any of them may be a misplaced secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TypeVar, dataclass_transform

import msgspec

from kubesched.api.yaml_nodes import YamlError, load
from kubesched.base.errors import CredentialsError

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Maximum file size; a kubeconfig with a thousand clusters has five megabytes."""

EXEC_EXTENSION = "client.authentication.k8s.io/exec"
"""The cluster extension passed to exec plugins as their configuration."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class _Section(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"


class NamedExtension(_Section):
    """Data of other programs, stored in the file."""

    name: str
    extension: object = None


class Cluster(_Section):
    """Connection to one API server. `*_data` is base64 as written."""

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    extensions: list[NamedExtension] = []


class ExecEnvVar(_Section):
    """One variable for the plugin's environment."""

    name: str = ""
    value: str = ""


class ExecConfig(_Section, rename="camel"):
    """A program that provides credentials."""

    command: str = ""
    args: list[str] = []
    env: list[ExecEnvVar] = []
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class AuthProviderConfig(_Section):
    """A built-in authentication provider: none is supported."""

    name: str = ""


class User(_Section):
    """A user's credentials. `*_data` is base64 as written."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    impersonate: str = msgspec.field(default="", name="as")
    impersonate_uid: str = msgspec.field(default="", name="as-uid")
    impersonate_groups: list[str] = msgspec.field(default_factory=list, name="as-groups")
    impersonate_user_extra: dict[str, list[str]] = msgspec.field(
        default_factory=dict, name="as-user-extra"
    )
    username: str = ""
    password: str = ""
    auth_provider: AuthProviderConfig | None = None
    exec: ExecConfig | None = None


class Context(_Section):
    """A cluster and a user under one name."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class Kubeconfig(_Section):
    """One file, or several merged."""

    clusters: dict[str, Cluster] = {}
    users: dict[str, User] = {}
    contexts: dict[str, Context] = {}
    current_context: str = ""
    files: tuple[str, ...] = ()

    def is_empty(self) -> bool:
        return not (self.clusters or self.users or self.contexts or self.current_context)


class _NamedCluster(_Section):
    name: str = ""
    cluster: Cluster = Cluster()


class _NamedUser(_Section):
    name: str = ""
    user: User = User()


class _NamedContext(_Section):
    name: str = ""
    context: Context = Context()


class _File(_Section):
    kind: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")
    clusters: list[_NamedCluster] = []
    users: list[_NamedUser] = []
    contexts: list[_NamedContext] = []
    current_context: str = ""


def load_files(paths: Iterable[str]) -> Kubeconfig:
    """Read and merge the files that exist; a broken one is an error.

    The first file to name a cluster, user or context defines all of it, and the first non-empty
    `current-context` wins.
    """
    merged = Kubeconfig()
    for path in dict.fromkeys(paths):  # ignores duplicates
        if not path:
            continue
        try:
            loaded = load_file(path)
        except FileNotFoundError:
            continue
        merged = Kubeconfig(
            clusters={**loaded.clusters, **merged.clusters},
            users={**loaded.users, **merged.users},
            contexts={**loaded.contexts, **merged.contexts},
            current_context=merged.current_context or loaded.current_context,
            files=(*merged.files, path),
        )
    return merged


def load_file(path: str) -> Kubeconfig:
    """One file with absolute paths. Raises `FileNotFoundError` or `CredentialsError`."""
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CredentialsError(f"kubeconfig {path}: cannot be read: {error.strerror}") from error
    if len(text) > MAX_FILE_BYTES:
        raise CredentialsError(f"kubeconfig {path}: larger than {MAX_FILE_BYTES} bytes")
    decoded = _decode(path, text)
    base = os.path.dirname(os.path.abspath(path))
    clusters = ((entry.name, _rooted_cluster(entry.cluster, base)) for entry in decoded.clusters)
    users = ((entry.name, _rooted_user(entry.user, base)) for entry in decoded.users)
    contexts = ((entry.name, entry.context) for entry in decoded.contexts)
    return Kubeconfig(
        clusters=_by_name(path, "clusters", clusters),
        users=_by_name(path, "users", users),
        contexts=_by_name(path, "contexts", contexts),
        current_context=decoded.current_context,
        files=(path,),
    )


Named = TypeVar("Named")


def _decode(path: str, text: bytes) -> _File:
    try:
        decoded = msgspec.convert(_without_nulls(_parse(path, text)) or {}, _File)
    except msgspec.ValidationError as error:
        raise CredentialsError(f"kubeconfig {path}: {_explain(str(error))}") from None
    except RecursionError:
        raise CredentialsError(f"kubeconfig {path}: nested too deeply") from None
    if decoded.kind not in ("", "Config") or decoded.api_version not in ("", "v1"):
        raise CredentialsError(
            f"kubeconfig {path}: kind and apiVersion must be Config and v1, or absent"
        )
    return decoded


def _parse(path: str, text: bytes) -> object:
    try:
        return load(text)
    except YamlError as error:
        where = f" (line {error.line}, column {error.column})" if error.line is not None else ""
        # The error can quote a piece of the file.
        problem = re.sub(r"(['\"`]).*?\1", "...", error.message)
        raise CredentialsError(f"kubeconfig {path}: {problem}{where}") from None


def _without_nulls(value: object) -> object:
    """Drops null fields, except inside other programs' extensions."""
    if isinstance(value, dict):
        return {
            key: item if key == "extension" else _without_nulls(item)
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    return value


_NAMES = {
    "str": "a string",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
}


def _explain(complaint: str) -> str:
    """A decoder's error in the file's terms: field first, then what was expected there."""
    complaint, _, path = complaint.partition(" - at `$")
    complaint = re.sub(r"`(\w+)`", lambda match: _NAMES.get(match[1], match[0]), complaint)
    complaint = complaint[:1].lower() + complaint[1:]
    place = path.rstrip("`").lstrip(".")
    return f"{place}: {complaint}" if place else complaint


def _by_name(path: str, section: str, entries: Iterable[tuple[str, Named]]) -> dict[str, Named]:
    named: dict[str, Named] = {}
    for name, entry in entries:
        if name in named:
            raise CredentialsError(f'kubeconfig {path}: {section}: duplicate name "{name}"')
        named[name] = entry
    return named


def _rooted_cluster(cluster: Cluster, base: str) -> Cluster:
    authority = _rooted(cluster.certificate_authority, base)
    return msgspec.structs.replace(cluster, certificate_authority=authority)


def _rooted_user(user: User, base: str) -> User:
    plugin = user.exec
    if plugin is not None and os.sep in plugin.command:  # otherwise it is looked up in PATH
        plugin = msgspec.structs.replace(plugin, command=_rooted(plugin.command, base))
    return msgspec.structs.replace(
        user,
        client_certificate=_rooted(user.client_certificate, base),
        client_key=_rooted(user.client_key, base),
        token_file=_rooted(user.token_file, base),
        exec=plugin,
    )


def _rooted(path: str, base: str) -> str:
    return os.path.normpath(os.path.join(base, path)) if path else ""
