"""The work of `kubesched shadow report`."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from kubesched.app.cli import terminal
from kubesched.app.cli.parsing import usage_error
from kubesched.app.cli.records import write_record
from kubesched.base.errors import KubeschedError

_MEANING = {
    "same": "both choose the same node",
    "tie": "the live node is among the candidate's best",
    "different": "the candidate prefers another node",
    "only_live": "the candidate finds no node",
    "only_shadow": "only the candidate finds a node",
    "neither": "no node for either",
    "error": "not compared: a plugin failed",
}


def report(args: argparse.Namespace) -> int:
    if args.promote and not args.config:
        return usage_error("--promote needs --config, the file to change")
    if bool(args.from_) + bool(args.recording) != 1 and not args.promote:
        return usage_error("name one of --from and --recording")
    if args.from_ or args.recording:
        shadows = _played(args.recording, args.config) if args.recording else _read(args.from_)
        chosen = [made for made in shadows if args.profile in ("", made["profile"])]
        if not chosen:
            names = ", ".join(made["profile"] for made in shadows) or "none"
            raise KubeschedError(f"no such shadow profile; there are: {names}")
        if args.output != "table":
            write_record(args.output, {"shadows": chosen})
        else:
            for made in chosen:
                _show(made, args.limit)
    if args.promote:
        _promote(args.config, args.profile)
    return 0


def _promote(path: str, profile: str) -> None:
    from kubesched.config.load import load, read_file
    from kubesched.config.promotion import promotion

    data = read_file(path)
    load(data, path, imports=True)
    sys.stdout.write(promotion(data.decode(), path, profile))


def _read(path: str) -> list[dict[str, Any]]:
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        shadows: list[dict[str, Any]] = msgspec.json.decode(data)["shadows"]
    except OSError as error:
        raise KubeschedError(f"{path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, KeyError, TypeError, IndexError):
        raise KubeschedError(f"{path}: not an answer of /debug/shadow") from None
    return shadows


def _played(folder: str, config: str) -> list[dict[str, Any]]:
    from kubesched.app.cli.plugin_lookup import installed_plugins
    from kubesched.config.load import load_file
    from kubesched.framework.profile import enabled_plugins
    from kubesched.insight.recording.reader import RecordingReader
    from kubesched.lab.traces.log_player import play
    from kubesched.scheduler.factory import Assembly

    shadows = []
    if config:
        loaded = load_file(config)
        enabled_plugins(loaded, installed_plugins())  # imports what the recording may name
        shadows = [profile for profile in loaded.profiles if profile.shadow is not None]
    run = RecordingReader.of_folder(folder).runs()[-1]
    part = run.playable()
    if part is None:
        raise KubeschedError(f"{folder}: the last run cannot be played")
    seen: list[Assembly] = []

    def before_attempt(_number: int, assembly: Assembly) -> bool:
        seen[:] = [assembly]
        return False

    played = play(part, before_attempt=before_attempt, shadows=shadows)
    if played.difference:
        print(f"note: played until a difference: {played.difference}", file=sys.stderr)
    made = seen[0].shadows if seen else None
    if made is None:
        raise KubeschedError(f"{folder}: no shadow profile decided there; name one with --config")
    return made.report()


def _show(made: dict[str, Any], limit: int) -> None:
    counts: dict[str, int] = made["decisions"]
    total = sum(counts.values())
    terminal.heading(
        f"{made['profile']} beside {made['of']}: {total} decisions "
        f"from {made['since']} to {made['until']}"
    )
    rows = [
        (result, str(count), f"{100 * count / total:.1f} %", _MEANING.get(result, ""))
        for result, count in counts.items()
        if count
    ]
    terminal.table(("RESULT", "DECISIONS", "SHARE", "MEANS"), rows)
    if made["lastError"]:
        terminal.notes([f"the candidate's last error: {made['lastError']}"])
    _show_differences(made["differences"], limit)
    print()
    terminal.sentence(
        "What decisions of this period put on nodes. The candidate's pods are counted where it "
        "would have put them as things stood, not where they would be if it had decided alone."
    )
    placed = made["placed"]
    terminal.table(
        ("PROFILE", "PODS", "NODES", "MOST ON ONE", "CPU OF THESE NODES", "MEMORY"),
        [
            (
                name,
                *(str(sums[key]) for key in ("pods", "nodes", "mostPodsOnANode")),
                *(f"{sums[key]} %" for key in ("cpuPercent", "memoryPercent")),
            )
            for name, sums in ((made["of"], placed["live"]), (made["profile"], placed["shadow"]))
        ],
    )
    waits = made["waits"]
    if waits["pods"]:
        print()
        text = f"{waits['pods']} pods waited {waits['seconds']:.0f} s in all"
        terminal.sentence(f"{text} although the candidate had a node for them.")


def _show_differences(differences: list[dict[str, Any]], limit: int) -> None:
    if not differences:
        return
    # Of a pair's pods, the newest that is explained speaks for it.
    explained = {(d["live"], d["shadow"]): d for d in reversed(differences) if d["plugin"]}
    pairs = Counter((d["live"], d["shadow"]) for d in differences)
    rows = []
    for pair, count in pairs.most_common(limit):
        cause = explained.get(pair, {"plugin": "-", "reason": "not explained", "pod": ""})
        live, shadow = (name or "<none>" for name in pair)
        rows.append((live, shadow, str(count), cause["plugin"], cause["reason"], cause["pod"]))
    print()
    terminal.table(("LIVE", "CANDIDATE", "PODS", "PLUGIN", "WHY", "SUCH AS"), rows)
    if len(pairs) > limit:
        terminal.sentence(f"and {len(pairs) - limit} more pairs of nodes")
