"""Plain data as YAML text, the way Kubernetes tools print it.

go-yaml and `yaml_nodes` read back exactly the same values: text that would resolve to something
else (`yes`, `1e3`, `~`) is quoted.
"""

from __future__ import annotations

from typing import Any

import yaml

from kubesched.api.yaml_nodes import Plain, resolve_plain
from kubesched.config.references import DEFAULT_REFERENCE, Reference
from kubesched.config.schema import encode
from kubesched.config.types import ExtensionPoint, KubeSchedulerConfiguration


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True  # no aliases: repeated values are written in full


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    is_itself = text not in ("", "<<") and resolve_plain(text) is text
    style = None if is_itself else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def to_plain(
    config: KubeSchedulerConfiguration, reference: Reference = DEFAULT_REFERENCE
) -> dict[str, Plain]:
    """The full configuration, as kube-scheduler's `--write-config-to` and `/configz` write it."""
    plain = encode(config)
    if not reference.pod_group_post_filter:
        profiles: Any = plain.get("profiles", [])
        for profile in profiles:
            profile.get("plugins", {}).pop(ExtensionPoint.POD_GROUP_POST_FILTER.value, None)
    return plain


def to_yaml(data: Plain) -> str:
    """Block style, keys sorted, lists not indented, like `kubectl get -o yaml`."""
    text: str = yaml.dump(
        data,
        Dumper=_Dumper,
        sort_keys=True,
        allow_unicode=True,
        width=4096,
        default_flow_style=False,
    )
    return text
