"""The default profile over a node table, without a scheduler."""

from kubesched.config.defaults import default_profile
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.types import KubeSchedulerProfile
from kubesched.framework.handle import Handle
from kubesched.framework.profile import build_frameworks
from kubesched.plugins.registry import in_tree_registry


def default_framework(table, handle=None):
    profile = default_profile(KubeSchedulerProfile(scheduler_name="default"), DEFAULT_GATES)
    handle = handle or Handle(table=table)
    registry = in_tree_registry()
    return build_frameworks([profile], registry, lambda _name: handle, DEFAULT_GATES)["default"]
