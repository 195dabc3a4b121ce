"""Parts of containers that can be simulated: commands that only wait and exit, missing images.

`sleep 30`, `true`, `false`, `exit 3`, and shell scripts of such steps set a container's run time
and exit code, as the pod's annotations would. All other commands are ignored.
A readiness probe succeeds after its initial delay.
"""

from __future__ import annotations

import re
import shlex

from kubesched.playground.apimachinery.objects import JsonObject, annotations_of, spec_of
from kubesched.playground.kubelet.options import EXIT_CODE, IMAGE_PULL, READY_AFTER, RUN_DURATION

FOREVER_S = 10 * 365 * 86400.0
_SHELLS = frozenset(("sh", "bash", "ash", "dash"))
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)")
_UNKNOWN_IMAGE = re.compile(r"invalid\.[^/]*/.*|.*:(?:non-?existent|404)|.*-doesnt-exist(?::.*)?")
_PAUSE = re.compile(r"(?:.*/)?pause(?:[:@].*)?")
_SEPARATOR = re.compile(r"&&|;|\n")


def with_effects(pod: JsonObject) -> JsonObject:
    """The pod with annotations derived from its containers; the pod itself if there are none."""
    spec = spec_of(pod)
    containers: list[JsonObject] = spec.get("containers") or []
    effects: dict[str, str] = {}
    is_endless = spec.get("restartPolicy", "Always") == "Always"
    for container in containers:
        if "command" in container or "args" in container:
            is_endless = False
        if _UNKNOWN_IMAGE.fullmatch(container.get("image", "")):
            effects[IMAGE_PULL] = "fail"
    delays = [
        container["readinessProbe"].get("initialDelaySeconds", 0)
        for container in containers
        if container.get("readinessProbe")
    ]
    if any(delays):
        effects[READY_AFTER] = f"{max(delays)}s"
    if not is_endless:
        effects |= _end_effects(containers)
    if not effects:
        return pod  # the common case: runs until deleted
    metadata = {**pod["metadata"], "annotations": {**effects, **annotations_of(pod)}}
    return {**pod, "metadata": metadata}


def _end_effects(containers: list[JsonObject]) -> dict[str, str]:
    """When the pod ends, and with which code; empty if it is unknown of a container."""
    ends = [_end_of(container) for container in containers]
    known = [end for end in ends if end is not None]
    if not known or len(known) < len(ends):
        return {}
    effects = {RUN_DURATION: f"{max(duration for duration, _ in known):.3f}s"}
    code = next((code for _, code in known if code), 0)
    if code:
        effects[EXIT_CODE] = str(code)
    return effects


def exit_code_of(container: JsonObject) -> int:
    """The exit code of a container's command; 0 if unknown."""
    end = _end_of(container)
    return end[1] if end is not None else 0


def _end_of(container: JsonObject) -> tuple[float, int] | None:
    """Seconds until the container exits, and its exit code; None if unknown."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not words:
        return (FOREVER_S, 0) if _PAUSE.fullmatch(container.get("image", "")) else None
    program = words[0].rpartition("/")[2]
    if program in _SHELLS and len(words) == 3 and words[1] in ("-c", "-ec", "-xc"):
        return _script(words[2])
    return None if program == "exit" else _step(words)


def _script(text: str) -> tuple[float, int] | None:
    total_s, code = 0.0, 0
    for line in _SEPARATOR.split(text):
        try:
            words = shlex.split(line)
        except ValueError:
            return None
        if not words:
            continue
        step = _step(words)
        if step is None or code:
            return None  # what follows a failed step depends on the separator
        total_s += step[0]
        if words[0] == "exit":
            return total_s, step[1]
        code = step[1]
    return total_s, code


def _step(words: list[str]) -> tuple[float, int] | None:
    program, arguments = words[0].rpartition("/")[2], words[1:]
    match program, arguments:
        case "sleep", [amount]:
            seconds = _seconds(amount)
            return None if seconds is None else (seconds, 0)
        case "exit", [code] if code.isdecimal():
            return 0.0, int(code) & 255
        case (("exit" | "true" | ":"), []):
            return 0.0, 0
        case "false", []:
            return 0.0, 1
    return None


def _seconds(amount: str) -> float | None:
    if amount in ("infinity", "inf"):
        return FOREVER_S
    match = _TIME.fullmatch(amount)
    return None if match is None else min(float(match[1]) * _UNITS[match[2]], FOREVER_S)
