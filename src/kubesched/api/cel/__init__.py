"""CEL, the Common Expression Language, in the dialect of Kubernetes.

    environment = Environment(
        variables={"self": types.map_of(types.STRING, types.DYN)},
        libraries=KUBERNETES,
        cost_limit=1_000_000,
    )
    program = compile('self.replicas <= 5', environment)   # CompileError, InstantiationError
    program.output_type                                     # types.BOOL
    program.evaluate({"self": {"replicas": 3}})             # True, or raises EvaluationError

An expression goes through these steps, one module each:

    text --lexer, parser--> syntax tree, macros expanded
         --checker--------> types and overloads
         --planner--------> Python closures

Errors have cel-go's texts, and costs are those of cel-go and Kubernetes. Callers decide which
variables to declare and which result types to accept.
"""

from kubesched.api.cel import types
from kubesched.api.cel.environment import Environment, Library, Overload
from kubesched.api.cel.errors import (
    CelError,
    CompileError,
    CostLimitExceededError,
    EvaluationError,
    InstantiationError,
    Issue,
)
from kubesched.api.cel.libraries import KUBERNETES
from kubesched.api.cel.libraries.lists import INCLUDES
from kubesched.api.cel.libraries.semver import Semver, parse_semver
from kubesched.api.cel.program import Evaluation, Program, compile
from kubesched.api.cel.types import Type
from kubesched.api.cel.values import DefaultMap, Duration, Optional, Timestamp, Uint, Value, type_of

__all__ = [
    "INCLUDES",
    "KUBERNETES",
    "CelError",
    "CompileError",
    "CostLimitExceededError",
    "DefaultMap",
    "Duration",
    "Environment",
    "Evaluation",
    "EvaluationError",
    "InstantiationError",
    "Issue",
    "Library",
    "Optional",
    "Overload",
    "Program",
    "Semver",
    "Timestamp",
    "Type",
    "Uint",
    "Value",
    "compile",
    "parse_semver",
    "type_of",
    "types",
]
