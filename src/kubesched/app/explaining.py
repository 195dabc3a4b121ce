"""Explains a recorded attempt by replaying the recording up to it.

The replayed scheduler has the state of that moment: queue, nominations, and assumed pods whose
bindings were not yet confirmed.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from kubesched.api.core_v1 import Pod
from kubesched.api.times import format_time
from kubesched.config.load import load
from kubesched.insight.explain import Explainer, Explanation
from kubesched.insight.explain.selection import Selection
from kubesched.insight.explain.sources import copier
from kubesched.insight.recording.reader import RecordingReader, Run
from kubesched.insight.recording.records import Attempt, Decision
from kubesched.insight.recording.segments import RecordingError
from kubesched.lab.traces.log_player import play
from kubesched.scheduler.factory import Assembly


@dataclass(frozen=True, slots=True)
class LoggedAttempt:
    """An attempt of a recording, and the node it chose, if any."""

    run: Run
    number: int
    pod: str
    wall_time: float
    node: str = ""


def find_attempt(
    reader: RecordingReader, pod: str, *, number: int | None = None, wall_time: float | None = None
) -> LoggedAttempt | None:
    """The pod's last attempt (up to a time), or attempt `number` of the last run.

    None if no replayable run has such an attempt.

    Raises:
        RecordingError: the attempt with that number is about another pod.
    """
    runs = reader.runs()
    for run in reversed(runs[-1:] if number is not None else runs):
        part = run.playable()
        attempt = None if part is None else _last_in(part, pod, number, wall_time)
        if attempt is not None:
            return attempt
    return None


def _last_in(
    run: Run, pod: str, number: int | None, wall_time: float | None
) -> LoggedAttempt | None:
    header = run.segments[0].header
    attempt: LoggedAttempt | None = None
    began, about = 0.0, ""
    for entry in run.entries():
        when = header.wall_time + (entry.time - header.time)
        if wall_time is not None and when > wall_time:
            break
        if not isinstance(entry, Attempt | Decision) or number not in (None, entry.number):
            continue
        if isinstance(entry, Attempt):
            began, about = when, entry.pod
        # The attempt of a group begins with one member and has a decision for each.
        if entry.pod == pod:
            node = entry.node if isinstance(entry, Decision) else ""
            attempt = LoggedAttempt(run, entry.number, pod, began, node)
    if attempt is None and about and number is not None:
        raise RecordingError(f"attempt {number} is about {about}, not about {pod}")
    return attempt


def explain_attempt(attempt: LoggedAttempt, select: Selection, *, fix: bool = False) -> Explanation:
    """Replay the run up to the attempt, and explain the pod as the scheduler saw it.

    Raises:
        RecordingError: the replay does not reach the attempt; the message says why.
    """
    explanations: list[Explanation] = []
    header = attempt.run.segments[0].header
    config = load(msgspec.json.encode(header.config), gates=header.gates())
    when = format_time(attempt.wall_time)

    def look(number: int, assembly: Assembly) -> bool:
        if number != attempt.number:
            return False
        pod = _pod(assembly, attempt.pod)
        if pod is not None:
            note = f"as it was before attempt {number}, at {when}, by playing the recording"
            explainer = Explainer(assembly, notes=[note], copy=copier(config, header.gates()))
            explanations.append(explainer.explain(pod, select, fix=fix, decided=attempt.node))
        return True

    played = play(attempt.run.playable_before(attempt.number), before_attempt=look)
    if not explanations:
        why = played.difference or "the pod is not there any more"
        raise RecordingError(f"attempt {attempt.number} cannot be played: {why}")
    return explanations[0]


def _pod(assembly: Assembly, key: str) -> Pod | None:
    listers = next(iter(assembly.frameworks.values())).handle.listers
    assert listers is not None, "an assembled scheduler has listers"
    namespace, _, name = key.partition("/")
    pod: Pod | None = listers.of(Pod).get(namespace, name)
    return pod
