"""The work of `kubesched plugin`."""

from __future__ import annotations

import keyword
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import resources
from importlib.metadata import entry_points
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from kubesched.app.cli import terminal
from kubesched.app.cli.plugin_lookup import installed_plugins
from kubesched.app.cli.records import write_record
from kubesched.base.errors import KubeschedError
from kubesched.base.version import __version__
from kubesched.config.default_plugins import IN_TREE_PLUGINS
from kubesched.framework.interfaces import (
    EXTENSION_POINTS,
    FilterPlugin,
    Plugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
)
from kubesched.framework.registry import ENTRY_POINT_GROUP, RegistryError

if TYPE_CHECKING:
    from kubesched.scheduler.plugin_profile import PluginProfile

_ENDING = ".txt"
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def new(name: str, folder: str | None) -> int:
    """Write the package of a plugin."""
    if not name.isascii() or not name.isidentifier() or keyword.iskeyword(name) or name[0] == "_":
        raise KubeschedError(f'"{name}" cannot be the name of a class: use one like RackAware')
    if not name[0].isupper():
        raise KubeschedError(f'"{name}": a plugin\'s name begins with a capital letter')
    if name in IN_TREE_PLUGINS:
        raise KubeschedError(f'"{name}" is the name of a default plugin')
    package = _WORDS.sub("_", name).lower().strip("_")
    if package in sys.stdlib_module_names or package in ("kubesched", "tests"):
        raise KubeschedError(f'"{name}": a package "{package}" exists already')
    words = {"name": name, "package": package, "dist": package.replace("_", "-")}
    target = Path(folder or words["dist"])
    if target.exists():
        raise KubeschedError(f"{target} exists already")
    words["version"] = __version__
    for path, template in _files(resources.files(__package__).joinpath("plugin_template")):
        text = template.read_text(encoding="utf-8")
        for word, value in words.items():
            text = text.replace(f"{{{{{word}}}}}", value)
        file = target / path.replace("src/package/", f"src/{package}/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (target / "src" / package / "py.typed").touch()
    print(f"{target}: the plugin {name}; README.md says how to go on")
    return 0


def _files(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _files(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_ENDING):
            yield f"{prefix}{entry.name.removesuffix(_ENDING)}", entry


def show(output: str, *, with_in_tree: bool) -> int:
    """List plugins."""
    rows = [
        _described(entry.name, _source(entry)) for entry in entry_points(group=ENTRY_POINT_GROUP)
    ]
    if with_in_tree:
        rows += [_described(name, "kubesched") for name in sorted(IN_TREE_PLUGINS)]
    if output != "table":
        write_record(output, rows)
    elif not rows:
        print("no plugins are installed; --all lists the in-tree ones", file=sys.stderr)
    else:
        cells = [(r["name"], r["source"], ", ".join(r["points"]), r["kept"]) for r in rows]
        terminal.table(("NAME", "FROM", "EXTENSION POINTS", "ANSWERS"), cells)
    return 0


def show_live(output: str, url: str, kubeconfig: str) -> int:
    """Show the profile of plugins of a running scheduler."""
    import asyncio

    import msgspec

    from kubesched.app.connecting import connections_to
    from kubesched.client.client_config import load_default_config
    from kubesched.scheduler.plugin_profile import PluginProfile

    async def read() -> bytes:
        connection = load_default_config(kubeconfig, server=url).connection
        async with connections_to(connection) as connections:
            return await connections.main.get_raw("/debug/plugins")

    try:
        profile = msgspec.json.decode(asyncio.run(read()), type=PluginProfile)
    except msgspec.DecodeError as error:
        raise KubeschedError(f"{url}: /debug/plugins is not kubesched's: {error}") from None
    if output != "table":
        write_record(output, msgspec.to_builtins(profile))
    else:
        print_profile(profile)
    return 0


def print_profile(profile: PluginProfile) -> None:
    from kubesched.scheduler.plugin_profile import HEADER

    terminal.table(HEADER, [cost.cells() for cost in profile.plugins])
    for blocked in profile.blocked:
        print(blocked)


def _source(entry: Any) -> str:  # noqa: ANN401  # an entry point
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else str(entry.module)


def _described(name: str, source: str) -> dict[str, Any]:
    try:
        plugin = installed_plugins().get(name)
        assert plugin is not None, "it is installed"
    except RegistryError as error:
        return {"name": name, "source": source, "points": [], "kept": str(error)}
    points = [point for point, kind in EXTENSION_POINTS.items() if kind in plugin.__mro__]
    return {"name": name, "source": source, "points": points, "kept": _kept(plugin)}


def _kept(plugin: type[Plugin]) -> str:
    """Whether answers may be kept, and if not, why not."""
    lacking = [
        method
        for method, kinds, base in (
            ("filter_rule", (PreFilterPlugin, FilterPlugin), FilterPlugin),
            ("score_rule", (PreScorePlugin, ScorePlugin), ScorePlugin),
        )
        if any(kind in plugin.__mro__ for kind in kinds)
        and getattr(plugin, method) is getattr(base, method)
    ]
    if lacking:
        return f"not kept: no {' and no '.join(lacking)}, so every pod asks about every node"
    decides = any(hasattr(plugin, method) for method in ("filter_rule", "score_rule"))
    return "kept as its rules say" if decides else "none to keep"


def check(name: str, args: str | None, examples: int, only: Sequence[str]) -> int:
    """Check a plugin; prints a line per promise."""
    try:
        from kubesched.testing.plugin_checks import CHECKS, results
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        text = "plugin check needs Hypothesis: pip install 'kubesched[testing]'"
        raise KubeschedError(text) from None
    unknown = next((check for check in only if check not in CHECKS), None)
    if unknown is not None:
        raise KubeschedError(f'there is no check "{unknown}", only {", ".join(CHECKS)}')
    sys.path.insert(0, os.getcwd())  # a console script does not look there
    plugin = installed_plugins().get(name)
    if plugin is None:
        text = f'no plugin "{name}" is installed; without an entry point, name it MODULE:CLASS'
        raise KubeschedError(text)
    faults = 0
    for promise, fault in results(plugin, _args(args), examples, only):
        print(f"{promise:<14}{'ok' if fault is None else 'broken'}", flush=True)
        if fault is not None:
            faults += 1
            print(fault)
    return 1 if faults else 0


def _args(path: str | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        value = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise KubeschedError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(value, dict):
        raise KubeschedError(f"{path}: the arguments must be a mapping")
    return value
