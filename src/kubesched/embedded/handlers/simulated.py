"""What cannot be done with a simulated pod, said in a way that a user understands."""

from __future__ import annotations

from kubesched.embedded.apimachinery.objects import JsonObject
from kubesched.errors import BadRequest

SIMULATED = {
    "attach": "there is nothing to attach to",
    "exec": "no command can run in it",
    "portforward": "it listens on no port",
}
"""Subresources that need a real container, and why they fail."""


def simulated(pod: JsonObject, subresource: str) -> BadRequest:
    metadata = pod["metadata"]
    name = f"{metadata['namespace']}/{metadata['name']}"
    return BadRequest(f"pod {name} is simulated: {SIMULATED[subresource]}")
