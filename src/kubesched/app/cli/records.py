"""Machine-readable output: `-o json` and `-o yaml`."""

from __future__ import annotations

import sys


def write_record(form: str, record: object) -> None:
    """Prints a record, or a list of them, as JSON or YAML."""
    import msgspec

    text = msgspec.json.encode(record)
    if form == "json":
        sys.stdout.write(msgspec.json.format(text, indent=2).decode() + "\n")
        return
    from kubesched.config.output import to_yaml

    sys.stdout.write(to_yaml(msgspec.json.decode(text)))


def fields(record: object, names: str) -> dict[str, object]:
    """The named attributes, under their JSON names."""
    return {_camel(name): getattr(record, name) for name in names.split()}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))
