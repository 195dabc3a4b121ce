"""Explains why a pod is pending, why it is on its node, and which changes would help.

    explainer = Explainer(in_memory_scheduler(state, config, classes=False))
    explanation = explainer.explain(pod)

Every answer comes from the scheduler's own framework: its runtime runs each plugin on every node,
and the message is the one that an attempt would write. Nothing is written and no pod is placed.
"""

from kubesched.insight.explain.explainer import Explainer
from kubesched.insight.explain.model import Explanation, Verdict

__all__ = ["Explainer", "Explanation", "Verdict"]
