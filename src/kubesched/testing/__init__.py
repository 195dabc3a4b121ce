"""The test kit for plugin authors: builders, a cluster in memory, and checks of plugins.

Names are imported on first use: the pytest plugin beside this module is loaded by every pytest run
of an environment that has kubesched, whether it is used or not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubesched.insight.state.cluster import Cluster
    from kubesched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
    from kubesched.testing.plugin_checks import PluginFault, check_plugin

__all__ = [
    "Cluster",
    "NodeBuilder",
    "PluginFault",
    "PodBuilder",
    "check_plugin",
    "make_node",
    "make_pod",
]

_MODULES = {
    "Cluster": "kubesched.insight.state.cluster",
    "PluginFault": "kubesched.testing.plugin_checks",
    "check_plugin": "kubesched.testing.plugin_checks",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  # the names above
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(_MODULES.get(name, "kubesched.testing.builders"))
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        raise ImportError(f"{name} needs Hypothesis: pip install 'kubesched[testing]'") from None
    return getattr(module, name)
