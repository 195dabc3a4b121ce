"""A trained policy as a Score plugin: NumPy and a file of weights, no torch.

The network judges each node by itself: the node's features and the pod's requests go in, a number
comes out, and the highest number wins. It therefore works with any number of nodes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kubesched.framework import MAX_NODE_SCORE, PodInfo, Rule, Scope, ScorePlugin
from kubesched.framework.api import Pod

SCALE = 1_000
"""Raw scores are whole numbers: this many per unit of the network's answer."""


@dataclass(frozen=True)
class Network:
    """Dense layers with tanh between them, and what its inputs mean."""

    resources: tuple[str, ...]
    largest: np.ndarray
    """The most that a node of the training had of each resource: scales what a pod requests."""
    layers: tuple[tuple[np.ndarray, np.ndarray], ...]

    @classmethod
    def load(cls, path):
        """Raises ValueError if the file has not the fields or shapes of a network."""
        try:
            saved = json.loads(Path(path).read_text())
            layers = tuple(
                (np.array(a, dtype=float), np.array(b, dtype=float)) for a, b in saved["layers"]
            )
            network = cls(
                tuple(saved["resources"]), np.array(saved["largest"], dtype=float), layers
            )
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"weights {path}: {error!r}") from None
        width = 2 * len(network.resources) + 1
        for matrix, offsets in layers:
            if matrix.shape != (len(offsets), width):
                raise ValueError(f"weights {path}: a layer of {matrix.shape} where {width} come in")
            width = len(offsets)
        if width != 1:
            raise ValueError(f"weights {path}: {width} numbers come out, not one per node")
        return network

    def save(self, path):
        layers = [
            [np.round(a.astype(float), 4).tolist(), np.round(b.astype(float), 4).tolist()]
            for a, b in self.layers
        ]
        saved = {"resources": self.resources, "largest": self.largest.tolist(), "layers": layers}
        Path(path).write_text(json.dumps(saved) + "\n")

    def judge(self, free, used, wants):
        """A number per node. Shapes: free (nodes, resources), used (nodes,), wants (resources,)."""
        pod = np.broadcast_to(np.minimum(1.0, wants / self.largest), free.shape)
        values = np.concatenate([free, used[:, None], pod], axis=1)
        for matrix, offsets in self.layers[:-1]:
            values = np.tanh(values @ matrix.T + offsets)
        matrix, offsets = self.layers[-1]
        return (values @ matrix.T + offsets)[:, 0]


@dataclass(frozen=True)
class LearnedPolicyArgs:
    """The arguments in the configuration's `pluginConfig`."""

    weights: str = str(Path(__file__).with_name("weights.json"))


class LearnedPolicy(ScorePlugin):
    name = "LearnedPolicy"
    args_type = LearnedPolicyArgs

    def __init__(self, args, handle):
        super().__init__(args, handle)
        self.network = Network.load(self.args.weights)

    def score_nodes(self, state, pod: Pod, nodes):
        index = self.handle.table.resource_index
        known = [index.get(name) for name in self.network.resources]
        free = np.zeros((len(nodes), len(known)))
        for at, resource in enumerate(known):
            if resource is not None:
                offered = nodes.allocatable(resource)
                left = np.maximum(0, offered - nodes.requested(resource))
                free[:, at] = left / np.maximum(1, offered)
        wants = np.array([PodInfo(pod).requests.get(name) for name in self.network.resources])
        judged = self.network.judge(free, nodes.pod_count > 0, wants)
        return np.rint(SCALE * judged).astype(np.int64)

    def normalize_scores(self, state, pod, scores, nodes):
        lowest, span = scores.min(), max(1, int(scores.max() - scores.min()))
        return (scores - lowest) * MAX_NODE_SCORE // span

    def score_rule(self, state, pod):
        return Rule(Scope.ROW)  # the node and the pods on it
