"""kubesched: a Kubernetes scheduler in Python.

    import kubesched as ks

    cluster = ks.Cluster(ks.nodes(100, cpu=32, memory="128Gi", zones=3))
    result = cluster.schedule(ks.pods(500, cpu="500m", memory="1Gi"))
    print(result, result.placements.to_pandas())

The names below are the library. They are imported on first use, so that importing the package costs
nothing to those who run the scheduler.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kubesched.base.version import __version__

if TYPE_CHECKING:
    from kubesched.base.errors import KubeschedError
    from kubesched.lab.library.cluster import Cluster
    from kubesched.lab.library.comparing import Compared, compare
    from kubesched.lab.library.objects import InputError, load, nodes, pods
    from kubesched.lab.library.results import Result
    from kubesched.lab.library.tables import Table
    from kubesched.lab.traces.reading import load_trace
    from kubesched.lab.traces.sample import sample_trace

__all__ = [
    "Cluster",
    "Compared",
    "InputError",
    "KubeschedError",
    "Result",
    "Table",
    "__version__",
    "compare",
    "load",
    "load_trace",
    "nodes",
    "pods",
    "sample_trace",
]

_MODULES = {
    "Cluster": "lab.library.cluster",
    "Compared": "lab.library.comparing",
    "InputError": "lab.library.objects",
    "KubeschedError": "base.errors",
    "Result": "lab.library.results",
    "Table": "lab.library.tables",
    "compare": "lab.library.comparing",
    "load": "lab.library.objects",
    "load_trace": "lab.traces.reading",
    "nodes": "lab.library.objects",
    "pods": "lab.library.objects",
    "sample_trace": "lab.traces.sample",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  # the names above
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
