"""The function libraries of Kubernetes' CEL dialect."""

from kubesched.cel.environment import Library
from kubesched.cel.libraries.comprehensions import BINDINGS, TWO_VARIABLE_COMPREHENSIONS
from kubesched.cel.libraries.ip import CIDRS, IPS
from kubesched.cel.libraries.lists import EXTENDED_LISTS, KUBERNETES_LISTS
from kubesched.cel.libraries.named_formats import NAMED_FORMATS
from kubesched.cel.libraries.optionals import OPTIONALS
from kubesched.cel.libraries.quantity import QUANTITIES
from kubesched.cel.libraries.regex import REGEX
from kubesched.cel.libraries.semver import SEMVERS
from kubesched.cel.libraries.sets import SETS
from kubesched.cel.libraries.standard import STANDARD
from kubesched.cel.libraries.strings import STRINGS
from kubesched.cel.libraries.urls import URLS

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
"""What Kubernetes 1.36 offers every expression that is stored in an object."""
