"""Cost of CEL: microseconds per compilation and per evaluation of typical device selectors.

python benchmarks/cel.py
"""

import timeit

from kubesched.api.cel import KUBERNETES, DefaultMap, Environment, compile, parse_semver, types
from kubesched.api.quantity import parse

DEVICE = types.object_type(
    "kubernetes.DRADevice",
    {
        "driver": types.STRING,
        "attributes": types.map_of(types.STRING, types.map_of(types.STRING, types.ANY)),
        "capacity": types.map_of(types.STRING, types.map_of(types.STRING, types.QUANTITY)),
        "allowMultipleAllocations": types.BOOL,
    },
)
ENVIRONMENT = Environment({"device": DEVICE}, KUBERNETES, cost_limit=1_000_000)
BINDINGS = {
    "device": {
        "driver": "gpu.example.com",
        "attributes": DefaultMap(
            {
                "gpu.example.com": {
                    "model": "a100",
                    "index": 3,
                    "healthy": True,
                    "driverVersion": parse_semver("2.1.0"),
                }
            },
            {},
        ),
        "capacity": DefaultMap({"gpu.example.com": {"memory": parse("40Gi")}}, {}),
        "allowMultipleAllocations": False,
    }
}
ATTRIBUTES = 'device.attributes["gpu.example.com"]'
SELECTORS = {
    "driver": 'device.driver == "gpu.example.com"',
    "one attribute": f'{ATTRIBUTES}.model == "a100"',
    "three terms": (
        f'device.driver == "gpu.example.com" && {ATTRIBUTES}.model == "a100" '
        f"&& {ATTRIBUTES}.index >= 2"
    ),
    "capacity": 'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0',
    "version": f'{ATTRIBUTES}.driverVersion.isGreaterThan(semver("2.0.0"))',
    "regular expression": f'{ATTRIBUTES}.model.matches("^[a-h]1?00$")',
    "comprehension": f'["a100", "h100"].exists(m, m == {ATTRIBUTES}.model)',
    "missing attribute": f"{ATTRIBUTES}.nosuch == 1",
}


def microseconds(function, seconds=0.2):
    """Best of five runs of about the given length each."""
    timer = timeit.Timer(function)
    count = 1
    while timer.timeit(count) < seconds / 10:
        count *= 2
    count *= 10
    return min(timer.repeat(5, max(1, count // 5))) / max(1, count // 5) * 1e6


def main():
    print(f"{'selector':20} {'compile µs':>12} {'evaluate µs':>12}")
    for name, expression in SELECTORS.items():
        program = compile(expression, ENVIRONMENT)
        compiling = microseconds(lambda expression=expression: compile(expression, ENVIRONMENT))
        run = program.evaluate if name != "missing attribute" else program.run
        evaluating = microseconds(lambda run=run: run(BINDINGS))
        print(f"{name:20} {compiling:12.0f} {evaluating:12.2f}")


if __name__ == "__main__":
    main()
