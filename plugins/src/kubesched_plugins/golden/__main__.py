"""`python -m kubesched_plugins.golden FILE...`: exit status 1 at a difference, 2 for a bad file."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from kubesched_plugins.golden import UnknownPlugin, compare_file

SHOWN = 20


def main(paths: list[str]) -> int:
    if not paths:
        print("usage: python -m kubesched_plugins.golden FILE...", file=sys.stderr)
        return 2
    status = 0
    for path in paths:
        cases = differing = shown = 0
        skipped: list[str] = []
        try:
            for case in compare_file(Path(path)):
                cases += 1
                differing += bool(case.differences)
                skipped += [f"{case.id}: {what}" for what in case.skipped]
                for found in case.differences:
                    shown += 1
                    if shown <= SHOWN:
                        print(f"{case.id}: {found.path}")
                        print(f"  recorded {found.recorded!r}")
                        print(f"  answered {found.answered!r}")
        except (OSError, UnknownPlugin, ValueError, KeyError) as error:
            print(f"{path}: {type(error).__name__}: {error}", file=sys.stderr)
            return 2
        if shown > SHOWN:
            print(f"and {shown - SHOWN} more differences")
        for what in skipped:
            print(f"not compared: {what}")
        print(f"{path}: {cases - differing} of {cases} cases agree")
        status = max(status, int(differing > 0))
    return status


if __name__ == "__main__":
    logging.disable()  # cases with wrong input make plugins complain
    sys.exit(main(sys.argv[1:]))
