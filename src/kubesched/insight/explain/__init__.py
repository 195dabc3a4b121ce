"""Why a pod is pending, why it is where it is, and what would help.

    explainer = Explainer(in_memory_scheduler(state, config, classes=False))
    explanation = explainer.explain(pod)

Every answer comes from the scheduler's own framework: plugins are asked through its runtime, one by
one and about every node, and the message is the one that an attempt would write. Nothing is written
and no pod is placed.
"""

from kubesched.insight.explain.explainer import Explainer
from kubesched.insight.explain.model import Explanation, Verdict

__all__ = ["Explainer", "Explanation", "Verdict"]
