"""Classes of pods: pods that plugins cannot distinguish share verdicts and scores.

There are two ways to decide a pod. They always agree; the tests compare them on random histories:

    full      every plugin evaluates every node (`scheduler.algorithm`): the reference and fallback
    by class  answers of plugins with a rule are cached as columns over the nodes and recomputed
              for dirty rows only; other plugins evaluate the remaining nodes (`engine`)

The package depends on `framework`; plugins know only its rules (`framework.rules`).
"""

from kubesched.scheduler.classes.engine import Best, ClassEngine, Walked
from kubesched.scheduler.classes.pod_classes import PodClass
from kubesched.scheduler.classes.walk import Walk

__all__ = ["Best", "ClassEngine", "PodClass", "Walk", "Walked"]
