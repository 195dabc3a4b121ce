"""Random extenders for a sequence, with their configuration (see `generate_sequence`).

# Upstream: ties among nodes scored by an extender are broken at random. Here there are none:
# plugins and extenders give multiples of a thousand, and the first extender, which is interested in
# every pod the others are interested in, adds a distinct rank below a thousand to each node.
"""

from __future__ import annotations

from random import Random

from kubesched.lab.conformance.extenders import HOST
from kubesched.lab.conformance.sequences import ExtenderPolicy, Json

UNIT = 1000
"""Weights of plugins are multiples of this."""

_WEIGHTS = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesFit": 1,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}
_MANAGED = ("example.com/gpu", "example.com/fpga")


def extended(random: Random, configuration: Json, salt: str) -> tuple[Json, list[ExtenderPolicy]]:
    """The configuration with one to three extenders, and their policies."""
    count = random.choice((1, 1, 2, 2, 3))
    for_some = count == 1 and random.random() < 0.5
    binder = random.choice((None, None, 0, 1))
    configured, policies = [], []
    for number in range(count):
        entry, policy = _extender(random, number, salt, binds=number == binder)
        if for_some:
            entry["managedResources"] = [_managed(random, name) for name in _MANAGED]
        elif number and random.random() < 0.5:
            # Extenders must not share a managed resource.
            entry["managedResources"] = [_managed(random, _MANAGED[number - 1])]
        configured.append(entry)
        policies.append(policy)
    profiles = configuration.get("profiles") or [{"schedulerName": "default-scheduler"}]
    return {
        **configuration,
        "profiles": [_weighed(profile) for profile in profiles],
        "extenders": configured,
    }, policies


def _managed(random: Random, name: str) -> Json:
    return {"name": name, "ignoredByScheduler": random.random() < 0.4}


def _extender(
    random: Random, number: int, salt: str, *, binds: bool
) -> tuple[Json, ExtenderPolicy]:
    first = number == 0
    filters = random.random() < 0.8
    victims = random.random() < 0.6
    name = f"x{number}"
    entry: Json = {
        "urlPrefix": f"{HOST}/{name}",
        "nodeCacheCapable": random.random() < 0.5,
        # The first extender is always called first; ignorable ones come last.
        "ignorable": not first and random.random() < 0.4,
        "httpTimeout": "900s",  # the player may be suspended for a while
        "weight": random.randint(1, 3),
    }
    if filters:
        entry["filterVerb"] = "filter"
    if first or random.random() < 0.5:
        entry["prioritizeVerb"] = "prioritize"
    if victims:
        entry["preemptVerb"] = "preempt"
    if binds:
        entry["bindVerb"] = "bind"
    policy = ExtenderPolicy(
        name,
        salt,
        rejects=random.choice((0, 15, 40)),
        fails=random.choice((0, 20)),
        fails_with_status=random.random() < 0.5,
        reverses=random.random() < 0.3,
        ranks=first,
        ranks_not=0 if first else random.choice((0, 30)),
        favours=random.choice((0, 30, 200)),
        chooses_victims=victims,
        keeps=random.choice((0, 30)),
        unbound=random.choice((0, 20)),
    )
    return entry, policy


def _weighed(profile: Json) -> Json:
    """The profile with the same scoring plugins, and all weights times `UNIT`."""
    plugins = profile.get("plugins") or {}
    score = plugins.get("score") or {}
    weights = _WEIGHTS | {plugin["name"]: plugin["weight"] for plugin in score.get("enabled") or ()}
    for plugin in score.get("disabled") or ():
        weights.pop(plugin["name"], None)
    enabled = [{"name": name, "weight": weight * UNIT} for name, weight in weights.items()]
    replaced = {"enabled": enabled, "disabled": [{"name": "*"}]}
    return {**profile, "plugins": {**plugins, "score": replaced}}
