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

    from kubesched import KUBERNETES_VERSION, __version__

    versions = {
        "version": __version__,
        "kubernetesVersion": f"v{KUBERNETES_VERSION}",
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
