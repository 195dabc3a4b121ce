"""Pods as columns: their requests, and batches that leave a table and return to it together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from kubesched.api.host_ports import HostPort
from kubesched.framework.nodes.columns import Indices, Ints
from kubesched.framework.nodes.pods import PodInfo


def amounts_of(pods: Sequence[PodInfo], resource_index: Mapping[str, int]) -> dict[int, Ints]:
    """The request of each pod, by resource; CPU, memory and storage come first."""
    requests = [pod.requests for pod in pods]
    native = [(each.milli_cpu, each.memory, each.ephemeral_storage) for each in requests]
    amounts = dict(enumerate(np.array(native, dtype=np.int64).reshape(-1, 3).T))
    for name in {name for each in requests for name in each.scalars} & resource_index.keys():
        asked_for = [each.scalars.get(name, 0) for each in requests]
        amounts[resource_index[name]] = np.array(asked_for, dtype=np.int64)
    return amounts


class PodBatch:
    """Pods temporarily out of a table; their sums serve for both removal and return."""

    def __init__(
        self, pods: Sequence[PodInfo], rows: Sequence[int], resource_index: Mapping[str, int]
    ) -> None:
        """`rows` holds the row of each pod."""
        self.pods = pods
        self.rows: Indices = np.array(rows, dtype=np.intp)
        kinds = [id(pod.derived) for pod in pods]  # pods of one spec share what follows from it
        of_kind = dict(zip(kinds, pods, strict=True))
        number_of = {kind: at for at, kind in enumerate(of_kind)}
        numbers = np.array([number_of[kind] for kind in kinds], dtype=np.intp)
        amounts = amounts_of(list(of_kind.values()), resource_index)
        self.amounts = {resource: each[numbers] for resource, each in amounts.items()}
        nonzero = [pod.nonzero_requests for pod in of_kind.values()]
        self.nonzero: Ints = np.array(nonzero, dtype=np.int64).reshape(-1, 2)[numbers].T
        priorities = np.array([pod.priority for pod in pods], dtype=np.int64)
        order = priorities.argsort(kind="stable")
        values, starts = np.unique(priorities[order], return_index=True)
        self.by_priority = dict(zip(values.tolist(), np.split(order, starts)[1:], strict=True))
        """The indices of the pods of each priority."""
        self.listed: dict[int, dict[str, PodInfo]] = {}
        """The pods of the rows as the table listed them."""
        self.label_classes = [pod.label_class for pod in pods]
        self.by_class = Counter(zip(self.label_classes, rows, strict=True))
        """Number of pods by label class and row."""
        self.with_terms = [(p, at) for p, at in zip(pods, rows, strict=True) if p.pod.spec.affinity]
        self.claims = [(c, at) for p, at in zip(pods, rows, strict=True) for c in p.claims]
        self.ports: dict[HostPort, set[int]] = {}
        """The rows by port; while the pods are out, only those on which it was in use."""
        ports = {kind: pod.host_ports for kind, pod in of_kind.items() if pod.host_ports}
        for kind, row in zip(kinds, rows, strict=True):
            for port in ports.get(kind, ()):
                self.ports.setdefault(port, set()).add(row)
