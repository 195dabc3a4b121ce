"""Equivalence classes of pods: pods with the same scheduling-relevant spec share verdicts and scores.

There are two ways to decide about a pod. They always agree; the tests compare them on random histories:

    full    every plugin evaluates every node (`scheduler.algorithm`). The reference, and the fallback.
    plan    answers of plugins with a rule are kept for the class, and nodes that all plugins treat alike are evaluated
            as one (`plan`, `class_index`, `ranking`). Plugins without a rule evaluate the remaining rows.

The package sits above `framework` and is used by the scheduler only: plugins know nothing but rules (`framework.rules`).
"""

from kubesched.equivalence.engine import Best, EquivalenceEngine
from kubesched.equivalence.pod_classes import ClassCache, PodClass
from kubesched.equivalence.walk import Walk, Walked

__all__ = ["Best", "ClassCache", "EquivalenceEngine", "PodClass", "Walk", "Walked"]
