"""Container commands that can be simulated: those that only wait and exit.

`sleep 30`, `true`, `false`, `exit 3`, and shell scripts of such steps set a container's run time
and exit code, as the pod's annotations would. All other commands are ignored.
"""

from __future__ import annotations

import re
import shlex

from kubesched.playground.apimachinery.objects import JsonObject, annotations_of, spec_of
from kubesched.playground.kubelet.options import EXIT_CODE, RUN_DURATION

FOREVER_S = 10 * 365 * 86400.0
_SHELLS = frozenset(("sh", "bash", "ash", "dash"))
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)")
_PAUSE = re.compile(r"(?:.*/)?pause(?:[:@].*)?")
_SEPARATOR = re.compile(r"&&|;|\n")


def with_effects(pod: JsonObject) -> JsonObject:
    """The pod with annotations derived from its containers' commands; unchanged if unknown."""
    spec = spec_of(pod)
    containers: list[JsonObject] = spec.get("containers") or []
    has_command = any("command" in container or "args" in container for container in containers)
    if not has_command and spec.get("restartPolicy", "Always") == "Always":
        return pod  # the common case: runs until deleted
    ends = [_end_of(container) for container in containers]
    known = [end for end in ends if end is not None]
    if not known or len(known) < len(ends):
        return pod
    stated = annotations_of(pod)
    effects = {RUN_DURATION: f"{max(duration for duration, _ in known):.3f}s"}
    code = next((code for _, code in known if code), 0)
    if code:
        effects[EXIT_CODE] = str(code)
    metadata = {**pod["metadata"], "annotations": {**effects, **stated}}
    return {**pod, "metadata": metadata}


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
