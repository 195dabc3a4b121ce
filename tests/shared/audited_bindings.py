"""What an API server's audit log says of bindings."""

from __future__ import annotations

import json
from pathlib import Path


def bindings(folder: Path) -> dict[str, int]:
    """Pod name -> how often a binding of it was carried out, by the `audit.log` of that folder."""
    counted: dict[str, int] = {}
    for line in (folder / "audit.log").read_text().splitlines():
        event = json.loads(line)
        reference = event["objectRef"]
        if reference.get("subresource") == "binding" and event["responseStatus"]["code"] == 201:
            counted[reference["name"]] = counted.get(reference["name"], 0) + 1
    return counted
