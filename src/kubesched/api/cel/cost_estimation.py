"""Worst-case cost of an expression, estimated before evaluation.

An API server rejects expressions whose estimate exceeds a limit. The estimate walks the checked
tree once, adds up the maximum cost of every node, and tracks known sizes: of constants, of results
of calls, of local variables, and of parts of declared variables, which the caller bounds
(`DeclaredSize`). Mirrors cel-go's `checker/cost.go`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubesched.api.cel import types
from kubesched.api.cel.call_estimates import (
    BY_FUNCTION,
    BY_OVERLOAD,
    CallEstimate,
    DeclaredSize,
    Operand,
)
from kubesched.api.cel.costs import LIST_CREATE, MAP_CREATE
from kubesched.api.cel.environment import Overload
from kubesched.api.cel.estimates import MAX, UNKNOWN, Path, Size, exactly, product, total
from kubesched.api.cel.macros import ACCUMULATOR
from kubesched.api.cel.syntax import (
    Call,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
)
from kubesched.api.cel.types import Type, TypeKind

_SCALARS = (
    TypeKind.BOOL,
    TypeKind.DOUBLE,
    TypeKind.DURATION,
    TypeKind.INT,
    TypeKind.TIMESTAMP,
    TypeKind.UINT,
)
_INSIDE = {"_[_](list(A), int)": "@items", "_[_](map(A, B), A)": "@values"}
_CONCATENATIONS = frozenset(f"_+_({of}, {of})" for of in ("string", "bytes", "list(A)"))
_NOTHING_YET = Size(MAX, 0)
"""The union of no sizes."""


@dataclass(frozen=True, slots=True)
class _EntrySizes:
    """Sizes of the keys (or indices) and values of a list or map."""

    kind: TypeKind
    key: Size
    value: Size


@dataclass(frozen=True, slots=True)
class _Variable:
    """A local variable: of a macro, or the accumulator of a comprehension."""

    path: Path
    size: Size | None
    entries: _EntrySizes | None


def worst_cost(root: Node, declared: DeclaredSize) -> int:
    """Maximum cost of evaluating a checked expression; `estimates.MAX` if unbounded."""
    return _Estimation(declared).cost(root)


class _Estimation:
    """Known sizes of the nodes of one tree; nodes are identified by `id`."""

    def __init__(self, declared: DeclaredSize) -> None:
        self._declared = declared
        self._paths: dict[int, Path] = {}
        self._sizes: dict[int, Size] = {}
        self._entries: dict[int, _EntrySizes] = {}
        self._variables: dict[str, list[_Variable]] = {}

    # -- costs -------------------------------------------------------------------------------------

    def cost(self, node: Node) -> int:
        match node:
            case Ident():
                return self._of_ident(node)
            case Select():
                return self._of_select(node)
            case Call():
                return self._of_call(node)
            case ListNode():
                return self._of_list(node)
            case MapNode():
                return self._of_map(node)
            case Comprehension():
                return self._of_bind(node) if _is_bind(node) else self._of_fold(node)
        return 0

    def _of_ident(self, node: Ident) -> int:
        variable = self._variable(node.name)
        self._paths[id(node)] = Path(node.name) if variable is None else variable.path
        return 1

    def _of_select(self, node: Select) -> int:
        if node.resolved is not None:
            self._paths[id(node)] = Path(node.resolved.name)
            return 1
        cost = self.cost(node.operand)
        if node.test_only:
            return cost
        if node.operand.type.kind in (TypeKind.MAP, TypeKind.OBJECT, TypeKind.PARAMETER):
            cost = total(cost, 1)
        self._paths[id(node)] = self._path(node.operand).then(node.field)
        return cost

    def _of_list(self, node: ListNode) -> int:
        cost, item = LIST_CREATE, _NOTHING_YET if node.elements else exactly(0)
        for element in node.elements:
            cost = total(cost, self.cost(element))
            item = item.union(self._size_or_unknown(element))
        self._entries[id(node)] = _EntrySizes(TypeKind.LIST, exactly(1), item)
        return cost

    def _of_map(self, node: MapNode) -> int:
        cost, key, value = MAP_CREATE, exactly(0), exactly(0)
        if node.entries:
            key = value = _NOTHING_YET
        for entry in node.entries:
            assert isinstance(entry.key, Node), "entries of a map have expressions as keys"
            cost = total(cost, self.cost(entry.key), self.cost(entry.value))
            key = key.union(self._size_or_unknown(entry.key))
            value = value.union(self._size_or_unknown(entry.value))
        self._entries[id(node)] = _EntrySizes(TypeKind.MAP, key, value)
        return cost

    def _of_fold(self, node: Comprehension) -> int:
        around = total(self.cost(node.iteration_range), self.cost(node.init))
        self._push(node.accumulator, self._bound_to(node.init))
        if node.variable2:
            self._push(node.variable, self._iteration_key(node.iteration_range))
            self._push(node.variable2, self._iteration_value(node.iteration_range))
        else:
            self._push(node.variable, self._iteration_element(node.iteration_range))
        turn = total(self.cost(node.condition), self.cost(node.step))
        self._pop(node.variable)
        if node.variable2:
            self._pop(node.variable2)
        around = total(around, self.cost(node.result))
        self._pop(node.accumulator)
        turns = self._size_or_unknown(node.iteration_range)
        if isinstance(node.init, Literal):
            self._set_size(node, self._size(node.init))
        elif isinstance(node.init, ListNode | MapNode):
            self._set_size(node, turns)
            self._set_entries(node, self._entry_sizes(node.step))
        return total(around, product(turns.most, turn))

    def _of_bind(self, node: Comprehension) -> int:
        cost = total(self.cost(node.iteration_range), self.cost(node.init))
        self._push(node.accumulator, self._bound_to(node.init))
        cost = total(cost, self.cost(node.result))
        self._pop(node.accumulator)
        self._copy_sizes(node, node.result)
        return cost

    # -- calls -------------------------------------------------------------------------------------

    def _of_call(self, node: Call) -> int:
        if node.function == "dyn":
            cost = total(1, self.cost(node.args[0]))
            self._copy_sizes(node, node.args[0])
            return cost
        costs = []
        operands = []
        for argument in node.args:
            costs.append(self.cost(argument))
            operands.append(self._operand(argument))
        target: Operand | None = None
        of_target = 0
        if node.target is not None:
            of_target = self.cost(node.target)
            target = self._operand(node.target)
        if node.function == "_?_:_":
            return self._of_conditional(node, costs)
        if not node.overloads:  # logical operators, optional selection
            self._set_size(node, self._size(node))
            own = 0 if node.function in ("_&&_", "_||_") else 1
            return total(own, *costs)
        worst, size = 0, None
        for overload in node.overloads:
            estimate = self._call(node, overload, target, operands)
            worst = max(worst, estimate.cost)
            if estimate.size is not None:
                size = estimate.size if size is None else size.union(estimate.size)
            inside = _INSIDE.get(overload.id)
            if inside is not None:
                entries = self._entry_sizes(node.args[0])
                size = None if entries is None else entries.value
                self._paths[id(node)] = self._path(node.args[0]).then(inside)
            if size is None:
                size = self._size(node)
        self._set_size(node, size)
        return total(of_target, worst, *costs)

    def _of_conditional(self, node: Call, costs: list[int]) -> int:
        _, yes, no = node.args
        size = self._size_or_unknown(yes).union(self._size_or_unknown(no))
        self._set_entries(node, _union(self._entry_sizes(yes), self._entry_sizes(no)))
        self._set_size(node, size)
        return total(costs[0], max(costs[1], costs[2]))

    def _call(
        self, node: Call, overload: Overload, target: Operand | None, operands: list[Operand]
    ) -> CallEstimate:
        if overload.id in _CONCATENATIONS:
            left, right = map(self._entry_sizes, node.args)
            self._set_entries(node, _union(left, right))
        for estimates, name in ((BY_FUNCTION, node.function), (BY_OVERLOAD, overload.id)):
            estimate = estimates.get(name)
            estimated = None if estimate is None else estimate(target, operands)
            if estimated is not None:
                return estimated
        return CallEstimate(1)

    def _operand(self, node: Node) -> Operand:
        path = self._path(node)
        if path.names[:1] == (ACCUMULATOR,):
            path = Path()
        return Operand(node, path, self._size(node), self._declared)

    # -- local variables ---------------------------------------------------------------------------

    def _variable(self, name: str) -> _Variable | None:
        stack = self._variables.get(name)
        return stack[-1] if stack else None

    def _push(self, name: str, variable: _Variable) -> None:
        self._variables.setdefault(name, []).append(variable)

    def _pop(self, name: str) -> None:
        self._variables[name].pop()

    def _bound_to(self, value: Node) -> _Variable:
        return _Variable(self._path(value), self._size(value), self._entry_sizes(value))

    def _iteration_key(self, over: Node) -> _Variable:
        entries = self._entry_sizes(over)
        inside = "@indices" if self._container(over, entries) is TypeKind.LIST else "@keys"
        return _Variable(self._path(over).then(inside), entries.key if entries else None, None)

    def _iteration_value(self, over: Node) -> _Variable:
        entries = self._entry_sizes(over)
        inside = "@items" if self._container(over, entries) is TypeKind.LIST else "@values"
        return _Variable(self._path(over).then(inside), entries.value if entries else None, None)

    def _iteration_element(self, over: Node) -> _Variable:
        """The single variable of a fold: values of a list, keys of a map."""
        is_list = self._container(over, self._entry_sizes(over)) is TypeKind.LIST
        return self._iteration_value(over) if is_list else self._iteration_key(over)

    @staticmethod
    def _container(over: Node, entries: _EntrySizes | None) -> TypeKind:
        return over.type.kind if entries is None else entries.kind

    # -- sizes -------------------------------------------------------------------------------------

    def _path(self, node: Node) -> Path:
        if isinstance(node, Ident):
            variable = self._variable(node.name)
            if variable is not None:
                return variable.path
        return self._paths.get(id(node)) or Path()

    def _size_or_unknown(self, node: Node) -> Size:
        size = self._size(node)
        return UNKNOWN if size is None else size

    def _size(self, node: Node) -> Size | None:
        known = self._sizes.get(id(node)) or _written_size(node)
        if known is not None:
            return known
        path = self._path(node)
        most = self._declared(path.names) if path else None
        if most is not None:
            known = self._sizes[id(node)] = Size(0, most)
            return known
        if _is_scalar(node.type):
            return exactly(1)
        variable = self._variable(node.name) if isinstance(node, Ident) else None
        return None if variable is None else variable.size

    def _set_size(self, node: Node, size: Size | None) -> None:
        if size is not None:
            self._sizes[id(node)] = size

    def _entry_sizes(self, node: Node) -> _EntrySizes | None:
        known = self._entries.get(id(node))
        if known is not None or not isinstance(node, Ident):
            return known
        variable = self._variable(node.name)
        return None if variable is None else variable.entries

    def _set_entries(self, node: Node, entries: _EntrySizes | None) -> None:
        if entries is not None:
            self._entries[id(node)] = entries

    def _copy_sizes(self, to: Node, source: Node) -> None:
        self._set_size(to, self._size(source))
        self._set_entries(to, self._entry_sizes(source))


def _union(one: _EntrySizes | None, other: _EntrySizes | None) -> _EntrySizes | None:
    if one is None or other is None:
        return None
    return _EntrySizes(one.kind, one.key.union(other.key), one.value.union(other.value))


def _written_size(node: Node) -> Size | None:
    """The size of a literal."""
    if isinstance(node, Literal):
        return exactly(len(node.value) if isinstance(node.value, str | bytes) else 1)
    if isinstance(node, ListNode):
        return exactly(len(node.elements))
    return exactly(len(node.entries)) if isinstance(node, MapNode) else None


def _is_scalar(type: Type) -> bool:
    if type.kind is TypeKind.OPAQUE and type.name == types.OPTIONAL_NAME:
        return _is_scalar(type.parameters[0])
    return type.kind in _SCALARS


def _is_bind(node: Comprehension) -> bool:
    """Whether this is an expansion of `cel.bind` and similar: one variable, no iteration."""
    empty, condition = node.iteration_range, node.condition
    return (
        isinstance(empty, ListNode)
        and not empty.elements
        and isinstance(condition, Literal)
        and condition.value is False
    )
