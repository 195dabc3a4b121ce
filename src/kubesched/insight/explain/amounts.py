"""Resource amounts as readable quantities."""

from __future__ import annotations

from kubesched.framework.nodes.node_table import NodeTable

_BYTES = ("memory", "ephemeral-storage")
_UNITS = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def is_in_bytes(resource: str) -> bool:
    return resource in _BYTES or resource.startswith("hugepages-")


def shown(resource: str, amount: int) -> str:
    """The amount (thousandths for cpu) as a quantity; bytes are rounded down to 0.1 of a unit."""
    if resource == "cpu":
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if not is_in_bytes(resource):
        return str(amount)
    for unit, size in _UNITS:
        if abs(amount) >= size:
            whole, rest = divmod(abs(amount), size)
            tenth = rest * 10 // size
            sign = "-" if amount < 0 else ""
            return f"{sign}{whole}.{tenth}{unit}" if tenth else f"{sign}{whole}{unit}"
    return str(amount)


def exact(resource: str, amount: int) -> str:
    """The amount as an exact quantity, for commands."""
    if resource == "cpu":
        return shown(resource, amount)
    if is_in_bytes(resource):
        for unit, size in _UNITS:
            if amount and amount % size == 0:
                return f"{amount // size}{unit}"
    return str(amount)


def free_of(table: NodeTable, resource: str, row: int) -> tuple[int, int]:
    """(free, allocatable) of a resource on a node."""
    column = table.resource_index.get(resource)
    if column is None:
        return 0, 0
    offered = int(table.allocatable[column].array[row])
    return offered - int(table.requested[column].array[row]), offered
