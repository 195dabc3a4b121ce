"""Importing this module makes the environments known to Gymnasium.

import gymnasium
import kubesched.gym

env = gymnasium.make("kubesched/Placement-v0", trace=trace)
"""

from __future__ import annotations

import gymnasium

from kubesched.lab.library.environments import REWARDS, PlacementEnv, WeightsEnv, evaluate, pod_of

__all__ = ["REWARDS", "PlacementEnv", "WeightsEnv", "evaluate", "pod_of"]

for _env in (PlacementEnv, WeightsEnv):
    _name = _env.__name__.removesuffix("Env")
    gymnasium.register(f"kubesched/{_name}-v0", entry_point=f"{_env.__module__}:{_env.__name__}")
