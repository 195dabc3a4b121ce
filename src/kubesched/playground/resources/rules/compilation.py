"""One rule as a program: type-checked against its schema, with its worst-case cost."""

from __future__ import annotations

from dataclasses import dataclass

from kubesched.api.cel import (
    KUBERNETES,
    CompileError,
    Environment,
    InstantiationError,
    Program,
    compile,
    estimate_cost,
    types,
)
from kubesched.api.cel.types import Type
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.resources.rules.declarations import Declaration
from kubesched.playground.resources.rules.field_paths import normalize

COST_LIMIT = 1_000_000
"""Limit for one rule on one value; upstream's limit per call."""
SELF_TYPE = "selfType0"
"""The type name of `self` if it is an object. Upstream: the number differs at every start."""


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A compiled rule; `program` is None if there is an error, or no rule."""

    source: str
    message: str
    reason: str
    field_path: str
    has_optional_old_self: bool
    program: Program | None = None
    error: str = ""
    worst_cost: int = 0
    message_program: Program | None = None
    message_error: str = ""
    message_worst_cost: int = 0

    @property
    def is_transition(self) -> bool:
        """Whether the rule reads `oldSelf`."""
        return self.program is not None and "oldSelf" in self.program.variables

    @property
    def shown(self) -> str:
        """The rule as shown in messages."""
        return (self.message or self.source).strip()


class _RuleError(Exception):
    pass


def compile_rules(schema: JsonObject, declaration: Declaration) -> list[CompiledRule]:
    """The rules of the schema itself, in order."""
    of = declaration.type
    plain = _environment(of, of)
    optional = _environment(of, types.optional_of(of))
    return [
        _compiled(rule, schema, declaration, optional if rule.get("optionalOldSelf") else plain)
        for rule in schema.get("x-kubernetes-validations") or ()
    ]


def _environment(new: Type, old: Type) -> Environment:
    variables = {"self": new, "oldSelf": old}
    return Environment(variables=variables, libraries=KUBERNETES, cost_limit=COST_LIMIT)


def _compiled(
    rule: JsonObject, schema: JsonObject, declaration: Declaration, environment: Environment
) -> CompiledRule:
    source, message = rule.get("rule") or "", rule.get("messageExpression") or ""
    program: Program | None = None
    message_program: Program | None = None
    error = message_error = ""
    cost = message_cost = 0
    try:
        if source.strip():
            program, cost = _program(source, declaration, environment, types.BOOL, "")
    except _RuleError as refusal:
        error = str(refusal)
    try:
        if message and program is not None:
            message_program, message_cost = _program(
                message, declaration, environment, types.STRING, "messageExpression"
            )
    except _RuleError as refusal:
        message_error = str(refusal)
    path = rule.get("fieldPath") or ""
    return CompiledRule(
        source=source,
        message=rule.get("message") or "",
        reason=rule.get("reason") or "",
        field_path=normalize(path, schema) or "",
        has_optional_old_self=bool(rule.get("optionalOldSelf")),
        program=program,
        error=error,
        worst_cost=cost,
        message_program=message_program,
        message_error=message_error,
        message_worst_cost=message_cost,
    )


def _program(
    source: str, declaration: Declaration, environment: Environment, result: Type, what: str
) -> tuple[Program, int]:
    prefix = f"{what} " if what else ""
    try:
        program = compile(source, environment)
        cost = estimate_cost(source, environment, declaration.size_at)
    except CompileError as error:
        raise _RuleError(f"{prefix}compilation failed: {error}") from error
    except InstantiationError as error:
        raise _RuleError(f"{what or 'program'} instantiation failed: {error}") from error
    if program.output_type != result:
        of = "a bool" if result is types.BOOL else "a string"
        raise _RuleError(f"{what or 'cel expression'} must evaluate to {of}")
    return program, cost
