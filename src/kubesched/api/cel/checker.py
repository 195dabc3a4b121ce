"""Type checking: assigns a type to every node and candidate overloads to every call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubesched.api.cel import types
from kubesched.api.cel.environment import Environment, Overload
from kubesched.api.cel.errors import CompileError, Issue, Source, in_order
from kubesched.api.cel.syntax import (
    Call,
    Comprehension,
    Entry,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    ObjectNode,
    Select,
    qualified_name,
)
from kubesched.api.cel.types import Type, TypeKind
from kubesched.api.cel.unification import Substitutions, most_general
from kubesched.api.cel.values import type_of

_FORMATTED = {
    TypeKind.ANY: "any",
    TypeKind.DURATION: "duration",
    TypeKind.ERROR: "!error!",
    TypeKind.NULL: "null",
    TypeKind.TIMESTAMP: "timestamp",
}


def format_type(type: Type) -> str:
    """Formats a type as cel-go's checker does, which differs from `str(type)`."""
    if type.kind in _FORMATTED:
        return _FORMATTED[type.kind]
    if not type.parameters:
        return type.name
    return f"{type.name}({', '.join(map(format_type, type.parameters))})"


def check(root: Node, source: Source, environment: Environment) -> list[Node]:
    """Fills in types and overloads; returns every node. Raises CompileError."""
    checker = _Checker(source, environment)
    checker.check(root)
    if checker.issues:
        raise CompileError(in_order(checker.issues), source.text)
    for node in checker.nodes:
        node.type = checker.substitutions.apply(node.type, unbound_to_dyn=True)
    return checker.nodes


def _unwrap_optional(type: Type) -> tuple[Type, bool]:
    if type.kind is TypeKind.OPAQUE and type.name == types.OPTIONAL_NAME:
        return type.parameters[0], True
    return type, False


class _Checker:
    def __init__(self, source: Source, environment: Environment) -> None:
        self.source = source
        self.identifiers = environment.identifiers
        self.functions = environment.functions
        self.substitutions = Substitutions()
        self.scopes: list[dict[str, Type]] = []
        self.issues: list[Issue] = []
        self.nodes: list[Node] = []
        self._parameters = 0
        self._checks: dict[type[Node], Callable[..., None]] = {
            Literal: self._check_literal,
            Ident: self._check_ident,
            Select: self._check_select,
            Call: self._check_call,
            ListNode: self._check_list,
            MapNode: self._check_map,
            ObjectNode: self._check_object,
            Comprehension: self._check_comprehension,
        }

    def check(self, node: Node) -> None:
        self.nodes.append(node)
        self._checks[type(node)](node)

    def report(self, node: Node, message: str) -> None:
        self.issues.append(self.source.issue(node.offset, message))

    def mismatch(self, node: Node, expected: Type, found: Type) -> None:
        self.report(
            node, f"expected type '{format_type(expected)}' but found '{format_type(found)}'"
        )

    def new_parameter(self) -> Type:
        self._parameters += 1
        return types.parameter(f"_var{self._parameters - 1}")

    def resolved(self, node: Node) -> Type:
        return self.substitutions.apply(node.type)

    # -- names -------------------------------------------------------------------------------------

    def lookup(self, name: str) -> tuple[str, Type] | None:
        """An identifier's full name and type: the innermost variable first."""
        name = name.removeprefix(".")
        for scope in reversed(self.scopes):
            if name in scope:
                return name, scope[name]
        declared = self.identifiers.get(name)
        return None if declared is None else (name, declared)

    def undeclared(self, node: Node, name: str) -> None:
        self.report(node, f"undeclared reference to '{name}' (in container '')")
        node.type = types.ERROR

    def _check_literal(self, node: Literal) -> None:
        node.type = type_of(node.value)

    def _check_ident(self, node: Ident) -> None:
        declared = self.lookup(node.name)
        if declared is None:
            self.undeclared(node, node.name)
            return
        node.name, node.type = declared
        node.constant = _named_type(node.type)

    def _check_select(self, node: Select) -> None:
        name = qualified_name(node)
        declared = self.lookup(name) if name is not None else None
        if declared is not None:
            node.resolved = Ident(node.offset, declared[0])
            node.type = node.resolved.type = declared[1]
            node.resolved.constant = _named_type(node.type)
            return
        result = self._select_field(node, node.operand, node.field, optional=False)
        node.type = types.BOOL if node.test_only else self.substitutions.apply(result)

    def _select_field(self, node: Node, operand: Node, field: str, *, optional: bool) -> Type:
        self.check(operand)
        target, was_optional = _unwrap_optional(self.resolved(operand))
        result = types.ERROR
        if target.kind is TypeKind.MAP:
            result = target.parameters[1]
        elif target.kind is TypeKind.OBJECT:
            if target.fields is None:
                self.report(node, f"unexpected failed resolution of '{target.name}'")
            elif field in target.fields:
                result = target.fields[field]
            else:
                self.report(node, f"undefined field '{field}'")
        elif target.kind is TypeKind.PARAMETER:
            self.substitutions.is_assignable(types.DYN, target)
            result = types.DYN
        else:
            if not target.is_dynamic and target.kind is not TypeKind.ERROR:
                self.report(node, f"type '{format_type(target)}' does not support field selection")
            result = types.DYN
        return types.optional_of(result) if was_optional or optional else result

    # -- calls -------------------------------------------------------------------------------------

    def _check_call(self, node: Call) -> None:
        if node.function == "_?._":
            field = node.args[1]
            assert isinstance(field, Literal)
            result = self._select_field(node, node.args[0], field.value, optional=True)
            node.type = self.substitutions.apply(result)
            field.type = types.STRING
            return
        for argument in node.args:
            self.check(argument)
        if node.target is None:
            name = node.function.removeprefix(".")
            overloads = self.functions.get(name)
            if overloads is None:
                self.undeclared(node, node.function)
                return
            node.function = name
            self._resolve(node, overloads)
            return
        prefix = qualified_name(node.target)
        if prefix is not None:
            name = f"{prefix.removeprefix('.')}.{node.function}"
            overloads = self.functions.get(name)
            if overloads is not None:
                node.function, node.target = name, None
                self._resolve(node, overloads)
                return
        self.check(node.target)
        overloads = self.functions.get(node.function)
        if overloads is None:
            self.undeclared(node, node.function)
            return
        self._resolve(node, overloads)

    def _resolve(self, node: Call, overloads: tuple[Overload, ...]) -> None:
        if node.function in ("_&&_", "_||_"):
            self._resolve_logical(node)
            return
        arguments = [argument.type for argument in node.args]
        is_member = node.target is not None
        if node.target is not None:
            arguments.insert(0, node.target.type)
        result: Type | None = None
        matching: list[Overload] = []
        for overload in overloads:
            if overload.member is not is_member:
                continue
            declared, returned = self._instantiate(overload)
            if not self.substitutions.are_assignable(arguments, declared):
                continue
            matching.append(overload)
            returned = self.substitutions.apply(returned)
            if result is None:
                result = returned
            elif not result.is_dynamic and returned != result:
                result = types.DYN
        if result is None:
            self._no_overload(node, arguments, is_member=is_member)
            return
        node.type = result
        node.overloads = tuple(matching)

    def _instantiate(self, overload: Overload) -> tuple[Sequence[Type], Type]:
        """The overload's types with fresh type parameters."""
        if not overload.is_generic:
            return overload.arguments, overload.result
        fresh: dict[str, Type] = {}

        def renew(type: Type) -> Type:
            if type.kind is TypeKind.PARAMETER:
                if type.name not in fresh:
                    fresh[type.name] = self.new_parameter()
                return fresh[type.name]
            if not type.parameters:
                return type
            return Type(type.kind, type.name, tuple(map(renew, type.parameters)), type.fields)

        return [renew(argument) for argument in overload.arguments], renew(overload.result)

    def _resolve_logical(self, node: Call) -> None:
        node.type = types.BOOL
        for argument in node.args:
            if not self.substitutions.is_assignable(argument.type, types.BOOL):
                self.mismatch(argument, types.BOOL, argument.type)
                node.type = types.ERROR

    def _no_overload(self, node: Call, arguments: list[Type], *, is_member: bool) -> None:
        shown = [
            format_type(self.substitutions.apply(argument, unbound_to_dyn=True))
            for argument in arguments
        ]
        receiver = f"{shown.pop(0)}." if is_member else ""
        self.report(
            node,
            f"found no matching overload for '{node.function}' applied to "
            f"'{receiver}({', '.join(shown)})'",
        )
        node.type = types.ERROR

    # -- aggregates --------------------------------------------------------------------------------

    def _join(self, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        if self.substitutions.is_assignable(previous, current):
            return most_general(previous, current)
        return types.DYN

    def _optional_content(self, node: Node) -> Type:
        content, is_optional = _unwrap_optional(node.type)
        if not is_optional and not content.is_dynamic:
            self.mismatch(node, types.optional_of(content), content)
        return content

    def _check_list(self, node: ListNode) -> None:
        joined: Type | None = None
        for index, element in enumerate(node.elements):
            self.check(element)
            is_optional = index in node.optional
            type = self._optional_content(element) if is_optional else element.type
            joined = self._join(joined, type)
        node.type = types.list_of(joined if joined is not None else self.new_parameter())

    def _check_map(self, node: MapNode) -> None:
        key_type: Type | None = None
        value_type: Type | None = None
        for entry in node.entries:
            assert isinstance(entry.key, Node)
            self.check(entry.key)
            key_type = self._join(key_type, entry.key.type)
            value_type = self._join(value_type, self._entry_type(entry))
        node.type = types.map_of(
            key_type if key_type is not None else self.new_parameter(),
            value_type if value_type is not None else self.new_parameter(),
        )

    def _entry_type(self, entry: Entry) -> Type:
        self.check(entry.value)
        return self._optional_content(entry.value) if entry.optional else entry.value.type

    def _check_object(self, node: ObjectNode) -> None:
        declared = self.lookup(node.name)
        if declared is None:
            self.undeclared(node, node.name)
            return
        name, type = declared
        if type.kind is TypeKind.TYPE:
            named = _named_type(type)
            self.report(node, f"'{named.name if named else name}' is not a message type")
        else:
            self.report(node, f"'{type.name}' is not a type")
        node.type = types.ERROR

    # -- comprehensions ----------------------------------------------------------------------------

    def _check_comprehension(self, node: Comprehension) -> None:
        self.check(node.iteration_range)
        self.check(node.init)
        range_type = self.resolved(node.iteration_range)
        accumulator = node.init.type
        self.scopes.append({node.accumulator: accumulator})
        self.scopes.append(self._iteration_variables(node, range_type))
        self.check(node.condition)
        self._assert_type(node.condition, types.BOOL)
        self.check(node.step)
        self._assert_type(node.step, accumulator)
        self.scopes.pop()
        self.check(node.result)
        self.scopes.pop()
        node.type = self.resolved(node.result)

    def _iteration_variables(self, node: Comprehension, range_type: Type) -> dict[str, Type]:
        first = second = types.ERROR
        if range_type.kind is TypeKind.LIST:
            first = second = range_type.parameters[0]
            if node.variable2:
                first = types.INT
        elif range_type.kind is TypeKind.MAP:
            first, second = range_type.parameters
        elif range_type.kind in (TypeKind.DYN, TypeKind.ERROR, TypeKind.PARAMETER):
            self.substitutions.is_assignable(types.DYN, range_type)
            first = second = types.DYN
        else:
            self.report(
                node.iteration_range,
                f"expression of type '{format_type(range_type)}' cannot be range of a "
                "comprehension (must be list, map, or dynamic)",
            )
        variables = {node.variable: first}
        if node.variable2:
            variables[node.variable2] = second
        return variables

    def _assert_type(self, node: Node, expected: Type) -> None:
        if not self.substitutions.is_assignable(expected, node.type):
            self.mismatch(node, expected, node.type)


def _named_type(type: Type) -> Type | None:
    """The type that an identifier of type `type(...)` names."""
    return type.parameters[0] if type.kind is TypeKind.TYPE and type.parameters else None
