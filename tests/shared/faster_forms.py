"""Takes away what in-tree plugins give beside the plugin contract, which may make decisions faster
but never others.
"""

from types import MethodType

from kubesched.framework.engine import InTreePlugin
from kubesched.framework.rules import Rule
from kubesched.framework.runtime import Framework


def without_faster_forms(framework: Framework) -> None:
    for plugin in framework.plugins:
        for point in ("filter_rule", "score_rule"):
            if hasattr(plugin, point):
                setattr(plugin, point, plain_rule(getattr(plugin, point)))
        for name, member in vars(InTreePlugin).items():
            if callable(member):
                setattr(plugin, name, MethodType(member, plugin))
    framework.answers_by_spec = framework.fails_per_class = False
    framework.ignores_names = False


def plain_rule(honest):
    def rule(state, pod):
        given = honest(state, pod)
        return None if given is None else Rule(given.depends_on, given.premise)

    return rule
