"""Equivalence classes of pods: pods with the same scheduling-relevant spec share verdicts and scores.

Two ways lead to a decision, and to the same one; the tests compare them on random histories:

    full    every plugin is asked about every node (`scheduler.algorithm`). The reference, and the fallback.
    plan    what plugins with a rule said is kept for the class; nodes that all plugins treat alike are judged as one
            (`plan`, `class_index`, `ranking`), and plugins without a rule are asked about the rows that are left.

The package sits above `framework` and is used by the scheduler alone: plugins only know rules (`framework.rules`).
"""

from kubesched.equivalence.engine import Best, EquivalenceEngine
from kubesched.equivalence.pod_classes import ClassCache, PodClass

__all__ = ["Best", "ClassCache", "EquivalenceEngine", "PodClass"]
