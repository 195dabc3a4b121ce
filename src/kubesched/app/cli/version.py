"""`kubesched version`."""

from __future__ import annotations

import argparse

from kubesched.app.cli.options import add_output
from kubesched.app.cli.records import write_record

DESCRIPTION = "Print the version of kubesched and of the kube-scheduler it takes the place of."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_output(parser, "text", "json", "yaml")


def main(args: argparse.Namespace) -> int:
    import platform

    from kubesched.base.version import __version__
    from kubesched.config.references import DEFAULT_REFERENCE, REFERENCES

    versions = {
        "version": __version__,
        "kubernetesVersion": f"v{DEFAULT_REFERENCE.release}",
        "references": [f"v{reference.release}" for reference in REFERENCES.values()],
        "pythonVersion": platform.python_version(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }
    if args.output == "text":
        print(
            f"kubesched {__version__} (kube-scheduler {versions['kubernetesVersion']}, "
            f"Python {versions['pythonVersion']}, {versions['platform']})"
        )
        return 0
    write_record(args.output, versions)
    return 0
