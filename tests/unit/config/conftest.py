"""Hypothesis for the configuration tests: no deadlines, more examples on request."""

from __future__ import annotations

import os

from hypothesis import settings

# A busy machine must not fail a test; $HYPOTHESIS_EXAMPLES makes a nightly run search deeper.
settings.register_profile(
    "config", deadline=None, max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "100"))
)
settings.load_profile("config")
