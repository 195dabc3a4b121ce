"""/debug/plugins: what plugins cost, as JSON, or as text for clients that prefer it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from msgspec import to_builtins

from kubesched.app.server.requests import PageRequest, accepted_types
from kubesched.app.server.responses import json_body, text
from kubesched.base.http_server.messages import Response
from kubesched.scheduler.plugin_profile import PluginProfile, as_text

PATH: Final = "/debug/plugins"


@dataclass(frozen=True, slots=True)
class PluginsPage:
    """Serves the profile of plugins."""

    read: Callable[[], PluginProfile]

    async def __call__(self, request: PageRequest) -> Response:
        profile = self.read()
        if any(wanted.name == "text/plain" for wanted in accepted_types(request.accept)[:1]):
            return text(as_text(profile))
        return json_body(to_builtins(profile), indent=2 if request.pretty else None)
