"""Documents of kind `Changes`: what the forms of the what-if view ask for, as YAML.

Fields: docs/reference/page.md. They come over the network and never name a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated, Final, Literal

import msgspec

from kubesched.api.core_v1 import Pod
from kubesched.api.names import key_of
from kubesched.insight.planning.manifests import Manifest
from kubesched.insight.planning.nodes import NewNodes
from kubesched.insight.planning.plan import Changes
from kubesched.insight.planning.scaling import Scale
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.planned_cluster import PlanError
from kubesched.insight.state.replacements import is_daemon, is_mirror

MAX_PODS: Final = 20_000
_UNKNOWN: Final = re.compile("unknown field `(.*?)`")
_Name = Annotated[str, msgspec.Meta(min_length=1)]


class ChangesDocument(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Changes of a cluster; workloads are `KIND/NAMESPACE/NAME`."""

    api_version: Literal["kubesched/v1"]
    kind: Literal["Changes"]
    drain: list[_Name] = []
    delete: list[_Name] = []
    scale: dict[_Name, Annotated[int, msgspec.Meta(ge=0, le=MAX_PODS)]] = {}
    add_nodes: dict[_Name, Annotated[int, msgspec.Meta(ge=1, le=1000)]] = {}
    """How many, by the node that they are like."""
    requests: dict[_Name, dict[str, str]] = {}
    place_again: bool = False
    """Every pod of a controller is made anew."""


def read_changes(manifests: Iterable[Manifest], state: ClusterState) -> Changes:
    """The changes of the last of these documents.

    Raises:
        PlanError: a field is unknown or invalid; the message names it, and the nearest one.
    """
    changes = Changes()
    for manifest in manifests:
        document = _read(manifest)
        again = state.of(Pod) if document.place_again else ()
        changes = Changes(
            drain=document.drain,
            delete=document.delete
            + [f"pod/{key_of(pod.metadata)}" for pod in again if _comes_back(pod)],
            scale=[Scale(workload, count) for workload, count in document.scale.items()],
            add_nodes=[NewNodes(count, like, "") for like, count in document.add_nodes.items()],
            requests=document.requests,
        )
    return changes


def _read(manifest: Manifest) -> ChangesDocument:
    try:
        return msgspec.convert(manifest.obj, ChangesDocument)
    except msgspec.ValidationError as error:
        unknown = _UNKNOWN.search(str(error))
        known = ChangesDocument.__struct_encode_fields__
        nearest = get_close_matches(unknown[1], known, n=1) if unknown is not None else ()
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        raise PlanError(f"{manifest}: {error}{hint}") from None


def _comes_back(pod: Pod) -> bool:
    return pod.metadata.controller() is not None and not is_daemon(pod) and not is_mirror(pod)
