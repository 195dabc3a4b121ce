"""Takes away what in-tree plugins give beside the plugin contract, which may make decisions faster
but never others.
"""

from dataclasses import replace
from types import MethodType

from kubesched.framework.engine import InTreePlugin
from kubesched.framework.rules import Rule
from kubesched.framework.runtime import Framework


def without_faster_forms(framework: Framework) -> None:
    for plugin in framework.plugins:
        for point in ("filter_rule", "score_rule"):
            if hasattr(plugin, point):
                setattr(plugin, point, plain_rule(getattr(plugin, point)))
        if hasattr(plugin, "events_to_register"):
            plugin.events_to_register = plain_events(plugin.events_to_register)
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


def plain_events(honest):
    """Without what hints say they read."""

    def plain(registered):
        hint = registered.hint
        return registered if hint is None else replace(registered, hint=lambda *given: hint(*given))

    return lambda: [plain(registered) for registered in honest()]
