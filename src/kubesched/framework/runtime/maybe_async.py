"""Continuations for values that may be awaitable.

Decisions are synchronous unless a plugin or an extender needs I/O. `then` lets one function serve
both cases.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

U = TypeVar("U")


def then(
    value: Any,  # noqa: ANN401  # T | Awaitable[T], from which type checkers infer `object`
    use: Callable[..., U | Awaitable[U]],
    *arguments: object,
) -> U | Awaitable[U]:
    """`use(*arguments, value)`, after awaiting the value if it is awaitable.

    Taking `arguments` separately saves a closure in the common synchronous case.
    """
    if hasattr(value, "__await__"):
        return _await_then(value, use, arguments)
    return use(*arguments, value)


def finish(coroutine: Coroutine[Any, Any, U]) -> U:
    """The result of a coroutine that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: U = end.value
        return result
    coroutine.close()
    raise AssertionError("a decision waits for I/O although no extender is interested")


async def _await_then(
    value: Awaitable[Any], use: Callable[..., U | Awaitable[U]], arguments: tuple[object, ...]
) -> U:
    result: Any = use(*arguments, await value)
    final: U = await result if hasattr(result, "__await__") else result
    return final
