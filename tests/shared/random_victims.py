"""Small random clusters to preempt on: several priorities, start times, budgets, nominated pods,
ports, scalar resources.
"""

from __future__ import annotations

from random import Random

from kubesched.testing import make_node, make_pod

GPU = "example.com/gpu"
PRIORITIES = [-5, 0, 0, 0, 3, 7]


def random_victim(rng: Random, name: str):
    pod = make_pod(name, rng.choice(["default", "other"])).priority(rng.choice(PRIORITIES))
    pod.cpu(rng.choice(["100m", "500m", "1"]))
    if rng.random() < 0.5:
        pod.memory(rng.choice(["1Gi", "4Gi"]))
    if rng.random() < 0.3:
        pod.request("ephemeral-storage", "1Gi")
    if rng.random() < 0.3:
        pod.request(GPU, 1)
    if rng.random() < 0.3:
        pod.host_port(rng.choice([80, 443]), ip=rng.choice(["", "10.0.0.1"]))
    if rng.random() < 0.7:
        pod.labels(app=rng.choice(["web", "db"]))
    if rng.random() < 0.7:
        hour = rng.choice([0, 1, 2, 15])  # it is noon, and some clocks are fast
        pod.status(startTime=f"2026-01-01T{hour:02}:00:00Z")
    if rng.random() < 0.1:
        pod.terminating()
    return pod


def random_world(world_type, rng: Random):
    world = world_type()
    for number in range(rng.randint(1, 8)):
        node = make_node(f"n{number}").capacity(
            cpu=rng.choice(["1", "2"]), memory=rng.choice(["4Gi", "8Gi"]), pods=rng.choice([3, 20])
        )
        if rng.random() < 0.6:
            node.offers(GPU, rng.choice([1, 2]))
        if rng.random() < 0.8:
            node.offers("ephemeral-storage", "2Gi")
        if rng.random() < 0.1:
            node.taint("dedicated", "x")
        world.add_node(node)
        for each in range(rng.randrange(6)):
            world.add(random_victim(rng, f"v{number}-{each}").on(f"n{number}"))
        if rng.random() < 0.3:
            world.nominate(
                f"n{number}", f"rival{number}", cpu="500m", priority=rng.choice([0, 5, 9])
            )
    for number in range(rng.randrange(3)):
        app = rng.choice(["web", "db"])
        disrupted = [f"v{rng.randrange(8)}-{rng.randrange(6)}"] if rng.random() < 0.3 else []
        world.budget(f"b{number}", rng.randrange(3), disrupted, app=app)
    return world
