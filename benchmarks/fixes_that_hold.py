"""How many printed fixes hold, each carried out in a cluster with controllers and scheduler.

    python benchmarks/fixes_that_hold.py --seeds 1000 [--first 0] [--workers 2]

Situations and judge are those of the tests: `pending_situations.py` and `fix_judge.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "shared"))

from fix_judge import Verdicts, judge

from kubesched.base.errors import KubeschedError
from kubesched.base.logs import silence


def _judge_quietly(seed: int) -> tuple[int, Verdicts | str]:
    silence()
    try:
        return seed, judge(seed)
    except KubeschedError as error:
        return seed, repr(error)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    held: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    situations = 0
    seeds = range(args.first, args.first + args.seeds)
    with ProcessPoolExecutor(args.workers) as pool:
        for seed, verdicts in pool.map(_judge_quietly, seeds, chunksize=1):
            if isinstance(verdicts, str):
                print(f"seed {seed}: broken: {verdicts}", flush=True)
                continue
            situations += bool(verdicts.pending)
            held += verdicts.held
            if (seed + 1) % 50 == 0:
                print(f"{sum(held.values())} held up to seed {seed}", file=sys.stderr, flush=True)
            skipped += verdicts.skipped
            for text in verdicts.failed:
                print(text, flush=True)
                failed[text.split(": ")[1].split(" ")[0]] += 1
    total = sum(held.values()) + sum(failed.values())
    print(f"{situations} situations with pending pods of {args.seeds}")
    print(f"{sum(held.values())} of {total} fixes hold ({sum(held.values()) / max(total, 1):.1%})")
    for title, counts in (("held", held), ("not judged", skipped)):
        print(title, ", ".join(f"{kind} {count}" for kind, count in counts.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
