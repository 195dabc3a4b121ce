"""The scheduler configuration that commands work with: `--config` and `--feature-gates`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kubesched.cli.parsing import add_feature_gates

if TYPE_CHECKING:
    from kubesched.config.features import FeatureGates
    from kubesched.config.types import KubeSchedulerConfiguration


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """The options `--config` and `--feature-gates`."""
    parser.add_argument(
        "--config", metavar="FILE", help="the scheduler's configuration (default: the defaults)"
    )
    add_feature_gates(parser)


def load_configuration(args: argparse.Namespace) -> tuple[KubeSchedulerConfiguration, FeatureGates]:
    """The named file, or the defaults, and the feature gates.

    Raises:
        ConfigError: with everything wrong in gates or file.
    """
    from kubesched.config import features
    from kubesched.config.load import default_config, load_file

    gates = features.parse(args.feature_gates)
    return (load_file(args.config, gates) if args.config else default_config(gates)), gates
