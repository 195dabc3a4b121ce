"""The function libraries of Kubernetes' CEL dialect."""

from kubesched.api.cel.environment import Library
from kubesched.api.cel.libraries.comprehensions import BINDINGS, TWO_VARIABLE_COMPREHENSIONS
from kubesched.api.cel.libraries.ip import CIDRS, IPS
from kubesched.api.cel.libraries.lists import EXTENDED_LISTS, KUBERNETES_LISTS
from kubesched.api.cel.libraries.named_formats import NAMED_FORMATS
from kubesched.api.cel.libraries.optionals import OPTIONALS
from kubesched.api.cel.libraries.quantity import QUANTITIES
from kubesched.api.cel.libraries.regex import REGEX
from kubesched.api.cel.libraries.semver import SEMVERS
from kubesched.api.cel.libraries.sets import SETS
from kubesched.api.cel.libraries.standard import STANDARD
from kubesched.api.cel.libraries.strings import STRINGS
from kubesched.api.cel.libraries.urls import URLS

KUBERNETES: tuple[Library, ...] = (
    STANDARD,
    URLS,
    REGEX,
    KUBERNETES_LISTS,
    OPTIONALS,
    QUANTITIES,
    STRINGS,
    SETS,
    IPS,
    CIDRS,
    NAMED_FORMATS,
    TWO_VARIABLE_COMPREHENSIONS,
    BINDINGS,
    SEMVERS,
    EXTENDED_LISTS,
)
"""The libraries of Kubernetes 1.36 for expressions stored in objects."""
