"""Node prices: a YAML or JSON file of prices per hour by instance type or node name."""

from __future__ import annotations

import math

import yaml

from kubesched.api.kubernetes_yaml import load
from kubesched.base.files import read_file
from kubesched.lab.traces.measuring import Prices
from kubesched.lab.traces.trace import TraceError


def read_prices(path: str) -> Prices:
    """Raises TraceError."""
    try:
        value = load(read_file(path))
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise TraceError(f"{path}:{line}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise TraceError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(value, dict) or not value:
        raise TraceError(f"{path}: expected instance types and their prices per hour")
    for name, price in value.items():
        is_number = isinstance(price, int | float) and not isinstance(price, bool)
        if not is_number or not math.isfinite(price) or price < 0:
            raise TraceError(f"{path}: {name}: {price!r} is not a price per hour")
    return {str(name): float(price) for name, price in value.items()}
