"""Every async test in this folder runs on plain asyncio and, where it is installed, on uvloop: each
has its own TLS.
"""

import asyncio
import importlib.util


def pytest_asyncio_loop_factories(config, item):
    factories = {"asyncio": asyncio.new_event_loop}
    if importlib.util.find_spec("uvloop") is not None:
        import uvloop

        factories["uvloop"] = uvloop.new_event_loop
    return factories
