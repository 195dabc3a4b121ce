"""The scheduler configuration that commands work with: `--config` and `--feature-gates`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kubesched.cli.options import add_options

if TYPE_CHECKING:
    from kubesched.config.features import FeatureGates
    from kubesched.config.types import KubeSchedulerConfiguration


_GATES = """
--feature-gates A=true,... {=}  feature gates to assume; they change defaults and what is allowed
"""
_CONFIG = "--config FILE  the scheduler's configuration (default: the defaults)"


def add_configuration(parser: argparse.ArgumentParser, config: str = _CONFIG) -> None:
    """The options `--config`, which may be none or another one, and `--feature-gates`."""
    add_options(parser, f"{config}\n{_GATES}")


def load_configuration(args: argparse.Namespace) -> tuple[KubeSchedulerConfiguration, FeatureGates]:
    """The named file, or the defaults, and the feature gates.

    Raises:
        ConfigError: with everything wrong in gates or file.
    """
    from kubesched.config import features
    from kubesched.config.load import default_config, load_file

    gates = features.parse(args.feature_gates)
    return (load_file(args.config, gates) if args.config else default_config(gates)), gates
