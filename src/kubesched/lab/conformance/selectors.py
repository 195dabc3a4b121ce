"""Recorded device selectors: results of CEL expressions for devices, and compile errors."""

from __future__ import annotations

from collections.abc import Iterator

from kubesched.lab.conformance.comparison import Aspect, Finding
from kubesched.lab.conformance.recordings import SelectedDevice, Selector
from kubesched.playground.resources.validation.devices import compile_problem
from kubesched.plugins.dynamic_resources.structured.selectors import (
    DeviceContent,
    DeviceSelectors,
    SelectorFailure,
)

_RUN_TIME_ERROR = "CEL runtime error: "


def compare_selector(selector: Selector) -> Iterator[Finding]:
    """Compile and evaluate an expression on every recorded device."""
    compile_error = compile_problem(selector.expression)
    yield Finding(Aspect.COMPILATION, selector.compile_error, compile_error)
    if selector.compile_error or compile_error:
        return
    selectors = DeviceSelectors()
    for device, expected in zip(selector.devices, selector.results, strict=True):
        got = _verdict(selectors, selector.expression, device)
        yield Finding(Aspect.SELECTION, expected, got, device=_described(device))


def _verdict(selectors: DeviceSelectors, expression: str, device: SelectedDevice) -> bool | str:
    try:
        return selectors.matches(expression, DeviceContent(device.driver, device))
    except SelectorFailure as failure:
        return str(failure).removeprefix(_RUN_TIME_ERROR)


def _described(device: SelectedDevice) -> str:
    return f"of {device.driver} with {', '.join(device.attributes or ()) or 'no attributes'}"
