"""Trains the policy: `python train.py --minutes 8` writes weights.json.

It needs torch, stable-baselines3 and sb3-contrib; nothing else here does.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import torch
from learned_policy import Network
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.policies import MaskableMultiInputActorCriticPolicy
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv

import kubesched as ks
import kubesched.gym

WIDTH = 16
HELD_OUT = 1_000_000
"""Traces of training have seeds below this, those of the evaluation from it on."""


def training_trace(seed):
    """A short day, fuller than its nodes can take at noon."""
    return ks.sample_trace(nodes=20, pods=400, hours=12, seed=seed % HELD_OUT)


class Both(BaseFeaturesExtractor):
    """Nodes and pod side by side: a row per node, (nodes, node features + pod features)."""

    def __init__(self, space):
        self.nodes, node_width = space["nodes"].shape
        self.width = node_width + space["pod"].shape[0]
        super().__init__(space, self.nodes * self.width)

    def forward(self, observation):
        pod = observation["pod"][:, None, :].expand(-1, self.nodes, -1)
        return torch.cat([observation["nodes"], pod], dim=2).flatten(1)


class NodeByNode(torch.nn.Module):
    """The same small network for every node; the value is that of the mean node."""

    def __init__(self, nodes, width):
        super().__init__()
        self.shape = (nodes, width)
        self.latent_dim_pi, self.latent_dim_vf = nodes, WIDTH
        self.judge = torch.nn.Sequential(
            torch.nn.Linear(width, WIDTH),
            torch.nn.Tanh(),
            torch.nn.Linear(WIDTH, WIDTH),
            torch.nn.Tanh(),
            torch.nn.Linear(WIDTH, 1),
        )
        self.value = torch.nn.Sequential(torch.nn.Linear(width, WIDTH), torch.nn.Tanh())

    def forward_actor(self, features):
        return self.judge(features.view(-1, *self.shape)).squeeze(-1)

    def forward_critic(self, features):
        return self.value(features.view(-1, *self.shape)).mean(dim=1)

    def forward(self, features):
        return self.forward_actor(features), self.forward_critic(features)


class NodePolicy(MaskableMultiInputActorCriticPolicy):
    """Logits of actions are the network's answers themselves."""

    def __init__(self, *args, **options):
        super().__init__(*args, features_extractor_class=Both, ortho_init=False, **options)

    def _build_mlp_extractor(self):
        extractor = self.features_extractor
        self.mlp_extractor = NodeByNode(extractor.nodes, extractor.width)

    def _build(self, lr_schedule):
        super()._build(lr_schedule)
        self.action_net = torch.nn.Identity()


class Until(BaseCallback):
    """Ends the training at a time."""

    def __init__(self, deadline):
        super().__init__()
        self.deadline = deadline

    def _on_step(self):
        return time.monotonic() < self.deadline


def train(steps, minutes=10.0, reward="packing", seed=0, trace=training_trace, verbose=0):
    """A trained network. It sees no trace of the evaluation."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # the network is too small for more
    make = partial(gymnasium.make, "kubesched/Placement-v0", trace=trace, reward=reward)
    envs = DummyVecEnv([make] * 4)
    model = MaskablePPO(
        NodePolicy, envs, n_steps=512, batch_size=256, gamma=0.99, ent_coef=0.003,
        learning_rate=1e-3, seed=seed, device="cpu", verbose=verbose,
    )  # fmt: skip
    model.learn(steps, callback=Until(time.monotonic() + 60 * minutes))
    env = envs.envs[0].unwrapped
    linear = [part for part in model.policy.mlp_extractor.judge if hasattr(part, "weight")]
    numbers = [(p.weight.detach().numpy(), p.bias.detach().numpy()) for p in linear]
    network = Network(tuple(env.resources), np.array(env._largest, dtype=float), tuple(numbers))
    envs.close()
    return network


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--steps", type=int, default=10_000_000)
    parser.add_argument("--reward", default="packing")
    parser.add_argument("--to", default=str(Path(__file__).with_name("weights.json")))
    options = parser.parse_args()
    train(options.steps, options.minutes, options.reward, verbose=1).save(options.to)
