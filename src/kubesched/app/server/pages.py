"""Pages about the process itself: /configz, /flagz and /statusz."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from time import gmtime, strftime
from typing import Final

from msgspec import to_builtins

from kubesched.api.yaml_nodes import Plain
from kubesched.app.server.requests import PageRequest, accepted_types
from kubesched.app.server.responses import json_body, not_acceptable, rendered, text
from kubesched.base.clock import Clock
from kubesched.base.http_server.messages import Response
from kubesched.config.output import to_yaml
from kubesched.config.versions import Versions
from kubesched.scheduler.plugin_profile import PluginProfile, as_text

COMPONENT: Final = "kube-scheduler"
WARNING: Final = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility "
    "guarantees "
    "and is for debugging purposes only."
)
DELIMITERS: Final = (":", ": ", "=", " ")
"""Picked at random, so that clients do not rely on the text."""
GROUP: Final = "config.k8s.io"
VERSIONS: Final = ("v1beta1", "v1alpha1")
DEPRECATED: Final = "v1alpha1"


@dataclass(frozen=True, slots=True)
class ConfigPage:
    """The active configuration."""

    config: Mapping[str, Plain]

    async def __call__(self, request: PageRequest) -> Response:
        kind = {"kind": self.config["kind"]}  # comes first, as in upstream's records
        return json_body({"componentconfig": kind | dict(self.config)})


@dataclass(frozen=True, slots=True)
class FlagsPage:
    """Every flag and its value."""

    flags: Mapping[str, str]
    random: Random

    async def __call__(self, request: PageRequest) -> Response:
        delimiter = self.random.choice(DELIMITERS)
        lines = "".join(f"{name}{delimiter}{value}\n" for name, value in self.flags.items())
        page = f"\n{COMPONENT} flagz\n{WARNING}\n{lines}"
        fields: Callable[[], dict[str, Plain]] = lambda: {"flags": dict(self.flags)}  # noqa: E731 - only built on request
        return negotiated(request, "Flagz", page, fields)


@dataclass(frozen=True, slots=True)
class StatusPage:
    """Versions, start time and registered paths."""

    started: float
    """Seconds since the epoch."""
    paths: Sequence[str]
    versions: Versions
    clock: Clock
    random: Random

    async def __call__(self, request: PageRequest) -> Response:
        seconds = max(0, int(self.clock.now() - self.started))
        # Upstream shows the release's own version here even if it emulates another one.
        binary, emulated = self.versions.reference.release, self.versions.emulated
        python = f"python{platform.python_version()}"
        delimiter = self.random.choice(DELIMITERS)
        shown = {
            "Started": strftime("%a %b %d %H:%M:%S UTC %Y", gmtime(self.started)),
            "Up": f"{seconds // 3600} hr {seconds // 60 % 60:02d} min {seconds % 60:02d} sec",
            "Python version": python,
            "Binary version": binary,
            "Emulation version": emulated,
            "Paths": " ".join(self.paths),
        }
        # Upstream: a space follows the delimiter here, but not on the page of flags.
        lines = "".join(f"{name}{delimiter} {value}\n" for name, value in shown.items())
        page = f"\n{COMPONENT} statusz\n{WARNING}\n\n{lines}"
        fields: Callable[[], dict[str, Plain]] = lambda: {  # noqa: E731 - only built on request
            "startTime": strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(self.started)),
            "uptimeSeconds": seconds,
            # Upstream's schema has a field for Go only; the value names Python.
            "goVersion": python,
            "binaryVersion": binary,
            "emulationVersion": emulated,
            "paths": list(self.paths),
        }
        return negotiated(request, "Statusz", page, fields)


def negotiated(
    request: PageRequest, kind: str, page: str, fields: Callable[[], dict[str, Plain]]
) -> Response:
    """Text, unless the client asks for the structured kind with group, version and `as`."""
    structured: dict[str, Callable[[dict[str, Plain]], bytes]] = {
        "application/json": lambda made: rendered(made, pretty=request.pretty).encode(),
        "application/yaml": lambda made: to_yaml(made).encode(),
    }
    wanted = accepted_types(request.accept)
    if not wanted:
        return text(page)
    for media_type in wanted:
        if media_type.name in ("text/plain", "text/*", "*/*"):
            return text(page)
        parameters = media_type.parameters
        version = parameters.get("v", "")
        if (
            media_type.name not in structured
            or parameters.get("g") != GROUP
            or version not in VERSIONS
            or parameters.get("as") != kind
        ):
            continue
        document: dict[str, Plain] = {
            "kind": kind,
            "apiVersion": f"{GROUP}/{version}",
            "metadata": {"name": COMPONENT},
            **fields(),
        }
        body = structured[media_type.name](document)
        content_type = f"{media_type.name};g={GROUP};v={version};as={kind}"
        response = Response(body=body, content_type=content_type)
        return _with_deprecation(response, kind) if version == DEPRECATED else response
    # Upstream: an error in a format that the client did not ask for is indented for every client.
    readable = any(
        media_type.name == "application/json" and not media_type.parameters for media_type in wanted
    )
    return not_acceptable(*structured, "text/plain", pretty=request.pretty or not readable)


def _with_deprecation(response: Response, kind: str) -> Response:
    note = (
        f'299 - "This version of the {kind.lower()} endpoint is deprecated. Please use a newer '
        'version."'
    )
    return replace(response, headers={**(response.headers or {}), "Warning": note})


@dataclass(frozen=True, slots=True)
class PluginsPage:
    """What plugins cost, as JSON, or as text for clients that prefer it."""

    read: Callable[[], PluginProfile]

    async def __call__(self, request: PageRequest) -> Response:
        profile = self.read()
        if any(wanted.name == "text/plain" for wanted in accepted_types(request.accept)[:1]):
            return text(as_text(profile))
        return json_body(to_builtins(profile), indent=2 if request.pretty else None)
