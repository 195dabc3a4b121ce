"""Nodes and pods of the project's generator, with what a scheduler may meet but sequences leave
out: features that nodes declare, image volumes, restart rules, reported resizes, several nodes by
name, and parts that an API server would reject.
"""

from random import Random

from kubesched.lab.conformance import generate
from kubesched.lab.conformance.generate_terms import ZONE, chance

_FEATURES = (
    "ExtendWebSocketsToKubelet",
    "RestartAllContainersOnContainerExits",
    "SomethingNewer",
    "UserNamespacesHostNetworkSupport",
)
_IMAGES = ("reg.example/a:1", "reg.example/b:1", "e")


def node(random: Random, name):
    made = generate.node(random, name)
    if chance(random, 50):
        made["status"]["declaredFeatures"] = [f for f in _FEATURES if chance(random, 50)]
    return made


def pod(random: Random, name, *, malformed=False):
    made = generate.pod(random, name)
    made["metadata"]["uid"] = f"uid-{name}"
    spec = made["spec"]
    if chance(random, 8):
        spec["volumes"] = [{"name": "v", "image": {"reference": random.choice(_IMAGES)}}]
    if chance(random, 8):
        spec["hostNetwork"] = random.choice((True, False))
        spec["hostUsers"] = random.choice((True, False))
    if chance(random, 4):
        spec["containers"][0] |= {
            "restartPolicy": "Never",
            "restartPolicyRules": [
                {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}
            ],
        }
    if chance(random, 8):
        spec.setdefault("tolerations", []).append({"operator": "Gt", "key": "gpu"})
    if chance(random, 8):
        terms = [_named(random, malformed) for _ in range(random.randint(0 if malformed else 1, 2))]
        _required(spec)["nodeSelectorTerms"] = terms
    if malformed and chance(random, 10):
        expression = {
            "key": random.choice(("disk", "not a key", ZONE)),
            "operator": random.choice(("In", "Exists", "Gt", "Near")),
            "values": random.choice(([], ["a", "b"], ["{{bad}}"], ["-5"])),
        }
        _required(spec)["nodeSelectorTerms"].append({"matchExpressions": [expression]})
    return made


def _required(spec):
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    return affinity.setdefault(
        "requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": []}
    )


def _named(random, malformed):
    names = ("n000", "n001", "n002", "n999")
    values = random.choices(names, k=random.randint(1, 2 if malformed else 1))
    operator = random.choice(("In", "NotIn"))
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": values}]}
