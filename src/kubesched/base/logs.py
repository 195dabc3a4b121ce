"""Log lines in klog's two formats, on top of the standard library's `logging`.

    log = logs.get_logger(__name__)
    log.info("Successfully bound pod to node", v=2, pod=pod, node="n1")

    I0102 15:04:05.000000   12345 binding_cycle.py:165] "Successfully bound pod to node" pod="d/a"
    {"ts":1767366245000.123,"caller":"scheduler/binding_cycle.py:165","msg":"Successfully…","v":2,…}

Provides the key-value logger, verbosity (`-v`, `--vmodule`), and the writer. Lines of libraries and
of modules that use `logging` directly have the same format, without keys. Values are formatted only
when a line is written, so a disabled line costs one comparison.

Verbosity `v=N` is level `INFO - N`: `-v=4` is an ordinary threshold, and `logging.DEBUG` is `v=10`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TextIO

from kubesched.base.visible import visible, visible_lines

MAX_VERBOSITY = 2**31 - 1
_INFO = logging.INFO
_LOWEST_LEVEL = 1  # 0 would mean "inherit from the parent"


class Format(StrEnum):
    """`--logging-format`."""

    TEXT = "text"
    JSON = "json"


class ObjectRef(NamedTuple):
    """Reference to a cluster object, as logs name it."""

    name: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class PatternLevel(NamedTuple):
    """One entry of `--vmodule`: matching modules log up to this verbosity."""

    pattern: str
    verbosity: int

    def matches(self, logger_name: str) -> bool:
        """Matches the file name, or the whole path if the pattern contains a separator."""
        path = logger_name.replace(".", "/")
        pattern = self.pattern.removesuffix(".py").replace(".", "/")
        whole = "/" in pattern
        return fnmatchcase(path if whole else path.rpartition("/")[2], pattern)


class Logger:
    """Logger for lines with keys and values; one per module, wrapping the standard logger."""

    __slots__ = ("_is_enabled_for", "_known_levels", "_logger")

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._is_enabled_for = logger.isEnabledFor
        self._known_levels: dict[int, bool] = logger._cache  # type: ignore[attr-defined]  # not in typeshed
        """The cache behind `isEnabledFor`; `logging` clears it when a level changes."""

    def enabled(self, v: int) -> bool:
        """Whether lines of this verbosity are written; check before computing expensive values."""
        is_enabled = self._known_levels.get(_INFO - v)
        return self._is_enabled_for(_INFO - v) if is_enabled is None else is_enabled

    def info(self, message: str, /, *, v: int = 0, **values: object) -> None:
        level = _INFO - v if v < _INFO else _LOWEST_LEVEL
        if self._is_enabled_for(level):
            self._logger.log(level, message, extra={"values": values}, stacklevel=2)

    def infof(self, message: str, /, *arguments: object, v: int = 0) -> None:
        """A line without keys, where upstream uses klog.Infof."""
        self._logger.log(max(logging.INFO - v, _LOWEST_LEVEL), message, *arguments, stacklevel=2)

    def warningf(self, message: str, /, *arguments: object) -> None:
        """A line without keys, where upstream uses klog.Warningf."""
        self._logger.warning(message, *arguments, stacklevel=2)

    def warning(self, message: str, /, **values: object) -> None:
        self._logger.warning(message, extra={"values": values}, stacklevel=2)

    def error(
        self, message: str, /, error: BaseException | str | None = None, **values: object
    ) -> None:
        """Logs an error. The error's text comes first, under `err`."""
        told = values if error is None else {"err": error, **values}
        self._logger.error(message, extra={"values": told}, stacklevel=2)

    def exception(self, message: str, /, **values: object) -> None:
        """Like `error` with the current exception, plus its origin."""
        told = {"err": sys.exc_info()[1], **values}
        self._logger.error(message, exc_info=True, extra={"values": told}, stacklevel=2)


def get_logger(name: str) -> Logger:
    """Returns a module's logger; call it with `__name__`."""
    return Logger(logging.getLogger(name))


# Setting up.


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Logging flags."""

    format: Format = Format.TEXT
    verbosity: int = 0
    vmodule: tuple[PatternLevel, ...] = ()
    split_stream: bool = False
    """Write errors to stderr and everything else to stdout, instead of everything to stderr."""


def parse_vmodule(text: str) -> tuple[PatternLevel, ...]:
    """Parses `pattern=N,...` as klog does.

    Raises:
        ValueError: with klog's wording.
    """
    levels = []
    for entry in text.split(","):
        if not entry:
            continue
        pattern, equals, level = entry.partition("=")
        if not (pattern and equals and level):
            raise ValueError("syntax error: expect comma-separated list of filename=N")
        if not level.isascii() or not level.lstrip("+-").isdigit():
            raise ValueError("syntax error: expect comma-separated list of filename=N")
        verbosity = int(level)
        if verbosity < 0:
            raise ValueError("negative value for vmodule level")
        if verbosity:
            levels.append(PatternLevel(pattern, min(verbosity, MAX_VERBOSITY)))
    return tuple(levels)


def configure(
    settings: LogSettings, *, out: TextIO | None = None, errors: TextIO | None = None
) -> None:
    """Routes all log lines of the process to one writer; defaults are stdout and stderr."""
    writer = LineWriter(
        settings.format,
        errors=errors or sys.stderr,
        out=(out or sys.stdout) if settings.split_stream else None,
    )
    root = logging.getLogger()
    for handler in tuple(root.handlers):
        root.removeHandler(handler)
    root.addHandler(writer)
    logging.captureWarnings(True)
    set_verbosity(settings.verbosity)
    _set_vmodule(settings.vmodule)


def silence() -> None:
    """Disables logging until `configure`, for commands that run a scheduler in memory."""
    logging.getLogger("kubesched").addHandler(logging.NullHandler())


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Disables logging in the block: under fault injection, most warnings are expected."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def leave_out(is_noise: Callable[[BaseException], bool]) -> None:
    """Suppresses lines about errors for which `is_noise` is true. Call it after `configure`."""

    def keeps(record: logging.LogRecord) -> bool:
        error = (_values(record) or {}).get("err")
        return not (isinstance(error, BaseException) and is_noise(error))

    for handler in logging.getLogger().handlers:
        handler.addFilter(keeps)


def set_verbosity(verbosity: int) -> None:
    """Sets the threshold of every module that `--vmodule` does not name."""
    logging.getLogger().setLevel(max(logging.INFO - verbosity, _LOWEST_LEVEL))


def verbosity() -> int:
    return max(logging.INFO - logging.getLogger().level, 0)


_pinned: set[str] = set()
"""Loggers whose level `--vmodule` sets. Global, like `logging` itself."""


def _set_vmodule(patterns: tuple[PatternLevel, ...]) -> None:
    """Sets the level of matching loggers, both existing and future ones."""
    manager = logging.Logger.manager
    for name in _pinned:
        logging.getLogger(name).setLevel(logging.NOTSET)
    _pinned.clear()
    if not patterns:
        manager.loggerClass = None
        return

    class ModuleLogger(logging.Logger):
        def __init__(self, name: str, level: int = logging.NOTSET) -> None:
            super().__init__(name, level)
            _apply(self, patterns)

    manager.setLoggerClass(ModuleLogger)
    for logger in manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            _apply(logger, patterns)


def _apply(logger: logging.Logger, patterns: Iterable[PatternLevel]) -> None:
    for pattern in patterns:
        if pattern.matches(logger.name):
            logger.setLevel(max(logging.INFO - pattern.verbosity, _LOWEST_LEVEL))
            _pinned.add(logger.name)
            return


# Writing.


class LineWriter(logging.Handler):
    """Writes each line unbuffered in one call: a crash loses nothing, lines never interleave."""

    def __init__(self, form: Format, *, errors: TextIO, out: TextIO | None = None) -> None:
        super().__init__()
        self._render = _json_line if form is Format.JSON else _text_line
        self._errors = errors
        self._out = out

    def emit(self, record: logging.LogRecord) -> None:
        to_out = self._out is not None and record.levelno < logging.ERROR
        stream = self._out if to_out and self._out is not None else self._errors
        try:
            stream.write(self._render(record))
            stream.flush()
        except (OSError, ValueError):
            # The reader of our output is gone, and there is nowhere else to report it.
            return


def _values(record: logging.LogRecord) -> Mapping[str, object] | None:
    """Keys and values of a line from `Logger`; None for a line from plain `logging`."""
    values: Mapping[str, object] | None = getattr(record, "values", None)
    return values


def _text_line(record: logging.LogRecord) -> str:
    when = time.localtime(record.created)
    micros = int(record.created % 1 * 1e6)
    letter = "E" if record.levelno >= logging.ERROR else "W" if record.levelno >= 30 else "I"
    header = (
        f"{letter}{when.tm_mon:02d}{when.tm_mday:02d} "
        f"{when.tm_hour:02d}:{when.tm_min:02d}:{when.tm_sec:02d}"
        f".{micros:06d} {os.getpid():7d} {record.filename}:{record.lineno}]"
    )
    values = _values(record)
    if values is None:
        body = record.getMessage()
    else:
        pairs = "".join(f" {key}{_text_value(value)}" for key, value in values.items())
        body = f"{quoted(str(record.msg))}{pairs}"
    trace = _trace(record)
    return visible_lines(f"{header} {body}\n{trace}")


def _trace(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[0] is None:
        return ""
    return "".join(traceback.format_exception(*record.exc_info))


def _text_value(value: object) -> str:
    """`=value` in klog's form: quoted text (multi-line: indented), bare numbers, otherwise JSON."""
    plain = _plain(value)
    if isinstance(plain, ObjectRef):
        return f'="{visible(str(plain))}"'
    if not isinstance(plain, str):
        return f"={_to_json(plain)}"
    if "\n" not in plain:
        return f"={quoted(plain)}"
    lines = "".join(f"\t{line}\n" for line in plain.removesuffix("\n").split("\n"))
    return f"=<\n{lines} >"


def _json_line(record: logging.LogRecord) -> str:
    line: dict[str, object] = {
        "ts": round(record.created * 1000, 4),
        "caller": f"{_folder(record)}{record.filename}:{record.lineno}",
        "msg": record.getMessage(),
    }
    if record.levelno < logging.ERROR:
        line["v"] = max(logging.INFO - record.levelno, 0)
    for key, value in (_values(record) or {}).items():
        plain = _plain(value)
        line[key] = _as_mapping(plain) if isinstance(plain, ObjectRef) else plain
    if trace := _trace(record):
        line["stacktrace"] = trace
    return f"{_to_json(line)}\n"


def _folder(record: logging.LogRecord) -> str:
    folder = os.path.basename(os.path.dirname(record.pathname))
    return f"{folder}/" if folder else ""


def _as_mapping(ref: ObjectRef) -> dict[str, str]:
    return {"name": ref.name} | ({"namespace": ref.namespace} if ref.namespace else {})


def _plain(value: object) -> Any:  # noqa: ANN401 - anything json can write
    """Loggable form of a value: cluster objects by name, errors by text, collections unchanged."""
    if value is None or isinstance(value, str | bool | int | float | ObjectRef):
        return value
    if isinstance(value, BaseException):
        return str(value) or type(value).__name__
    metadata = getattr(value, "metadata", None)
    if metadata is not None and hasattr(metadata, "name"):
        return ObjectRef(metadata.name, getattr(metadata, "namespace", ""))
    if isinstance(value, Mapping):
        return {str(key): _nested(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(str(_nested(item)) for item in value)
    if isinstance(value, list | tuple):
        return [_nested(item) for item in value]
    return str(value)


def _nested(value: object) -> Any:  # noqa: ANN401 - as above
    plain = _plain(value)
    return _as_mapping(plain) if isinstance(plain, ObjectRef) else plain


def _to_json(value: object) -> str:
    return visible_lines(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


def quoted(text: str) -> str:
    """Quotes like Go's `%q`, so that a value cannot inject a second log line."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_quoted_character, text))}"'


GO_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def _quoted_character(character: str) -> str:
    short = GO_ESCAPES.get(character)
    if short is not None:
        return short
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
