"""How Hypothesis draws, for all tests.

The same examples every time, so that a landing does not depend on luck; `KUBESCHED_EXPLORE=1` draws new ones, which is
how counterexamples are looked for. `KUBESCHED_FUZZ_EXAMPLES` sets how many a test draws that does not say so itself.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A busy machine must not fail a test: no deadlines, and drawing examples may take its time.
CLOCKS = [HealthCheck.too_slow]
EXAMPLES = int(os.environ.get("KUBESCHED_FUZZ_EXAMPLES", "100"))
settings.register_profile(
    "fixed",
    derandomize=True,
    deadline=None,
    max_examples=EXAMPLES,
    suppress_health_check=CLOCKS,
)
settings.register_profile(
    "explore",
    deadline=None,
    max_examples=EXAMPLES,
    print_blob=True,
    suppress_health_check=CLOCKS,
)
settings.load_profile("explore" if os.environ.get("KUBESCHED_EXPLORE") else "fixed")
