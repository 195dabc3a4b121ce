"""Classes of pods: pods that plugins cannot tell apart share verdicts and scores.

There are two ways to decide about a pod. They always agree; the tests compare them on random
histories:

    full      every plugin evaluates every node (`scheduler.algorithm`). The reference, and the fallback.
    by class  answers of plugins with a rule are kept as columns over the nodes and computed again for
              dirty rows only; all other plugins are asked about the nodes that are left (`engine`)

The package sits above `framework`; plugins know nothing of it but rules (`framework.rules`).
"""

from kubesched.scheduler.classes.engine import Best, ClassEngine, Walked
from kubesched.scheduler.classes.pod_classes import PodClass
from kubesched.scheduler.classes.walk import Walk

__all__ = ["Best", "ClassEngine", "PodClass", "Walk", "Walked"]
