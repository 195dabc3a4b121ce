"""Kubernetes' named formats: `format.dns1123Label().validate(name)`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from kubesched.api import names
from kubesched.api.cel import costs, times
from kubesched.api.cel.environment import Library, declare
from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.libraries import url_parsing
from kubesched.api.cel.types import NAMED_FORMAT, Type
from kubesched.api.cel.values import NONE, Optional, Value

_UUID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\n?", re.ASCII | re.IGNORECASE)
_BASE64 = re.compile(
    r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})", re.ASCII
)
_TIME_OF_DAY = re.compile(
    r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})", re.ASCII
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_DATE_TIME_PATTERN_SIZE = 71

Validate = Callable[[str], Sequence[str]]


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """A named format for validating strings."""

    cel_type: ClassVar[Type] = NAMED_FORMAT
    name: str
    validate: Validate = field(compare=False)
    pattern_size: int = field(compare=False)
    """Size that validation is charged for."""


def _prefix(validate: Validate) -> Validate:
    """Validation of a name prefix, which may end in a dash."""

    def of_prefix(text: str) -> Sequence[str]:
        if len(text) > 1 and text.endswith("-"):
            text = f"{text[:-2]}a"
        return validate(text)

    return of_prefix


def _test(is_valid: Callable[[str], bool], message: str) -> Validate:
    return lambda text: () if is_valid(text) else (message,)


def _uri(text: str) -> Sequence[str]:
    try:
        url_parsing.parse_request_uri(text)
    except url_parsing.UrlError as error:
        return (str(error),)
    return ()


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        return times.parse_timestamp(f"{text}T00:00:00Z") is not None
    except EvaluationError:  # the year 0
        return True


def _is_date_time(text: str) -> bool:
    parts = text.lower().split("t")
    if len(text) < 4 or len(parts) < 2 or not _is_date(parts[0]):
        return False
    match = _TIME_OF_DAY.fullmatch(parts[1])
    if match is None:
        return False
    return match[1] < "24" and match[2] < "60" and match[3] < "60"


_FORMATS = {
    "dns1123Label": NamedFormat("DNS1123Label", names.dns_1123_label_problems, 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", names.dns_1123_subdomain_problems, 60),
    "dns1035Label": NamedFormat("DNS1035Label", names.dns_1035_label_problems, 30),
    "qualifiedName": NamedFormat("QualifiedName", names.label_key_problems, 60),
    "dns1123LabelPrefix": NamedFormat(
        "DNS1123LabelPrefix", _prefix(names.dns_1123_label_problems), 30
    ),
    "dns1123SubdomainPrefix": NamedFormat(
        "DNS1123SubdomainPrefix", _prefix(names.dns_1123_subdomain_problems), 60
    ),
    "dns1035LabelPrefix": NamedFormat(
        "DNS1035LabelPrefix", _prefix(names.dns_1035_label_problems), 30
    ),
    "labelValue": NamedFormat("LabelValue", names.label_value_problems, 40),
    "uri": NamedFormat("URI", _uri, 1103),
    "uuid": NamedFormat(
        "uuid",
        _test(lambda text: bool(_UUID.fullmatch(text)), "does not match the UUID format"),
        70,
    ),
    "byte": NamedFormat(
        "byte", _test(lambda text: bool(_BASE64.fullmatch(text)), "invalid base64"), 84
    ),
    "date": NamedFormat("date", _test(_is_date, "invalid date"), _DATE_TIME_PATTERN_SIZE),
    "datetime": NamedFormat(
        "datetime", _test(_is_date_time, "invalid datetime"), _DATE_TIME_PATTERN_SIZE
    ),
}


def _validate(named: NamedFormat, text: str) -> Optional:
    problems = list(named.validate(text))
    return Optional(problems) if problems else NONE


def _named(name: str) -> Optional:
    named = _FORMATS.get(name)
    return NONE if named is None else Optional(named)


def _validation_cost(args: tuple[Value, ...], _result: Value) -> int:
    if not isinstance(args[0], NamedFormat):  # its evaluation failed
        return 1
    return costs.regex(costs.actual_size(args[1]), args[0].pattern_size)


def _constant(named: NamedFormat) -> Callable[[], NamedFormat]:
    return lambda: named


NAMED_FORMATS = Library(
    "kubernetes.format",
    (
        declare("format.named(string) -> optional(format)", _named),
        declare(".validate(format, string) -> optional(list(string))", _validate),
        *(declare(f"format.{name}() -> format", _constant(it)) for name, it in _FORMATS.items()),
    ),
    costs={"validate": _validation_cost},
)
