"""The selector for default spreading: the index of Services against a plain search through all of
them.
"""

from random import Random

import pytest

from kubesched.api.core_v1 import Service, ServiceSpec
from kubesched.api.meta import ObjectMeta
from kubesched.api.selectors import from_map
from kubesched.insight.state.memory import MemoryListers
from kubesched.plugins.helper.default_selector import DefaultSelectors
from kubesched.testing import make_pod

KEYS, VALUES = "abc", "xyz"


def plain_selector(pod, listers):
    """Upstream's way: a look at every Service of the namespace."""
    labels = pod.metadata.labels or {}
    selected = {}
    for service in listers.of(Service).list(pod.metadata.namespace):
        wanted = service.spec.selector
        if wanted is not None and wanted.items() <= labels.items():
            selected.update(wanted)
    return from_map(selected)


def random_labels(rng):
    return {key: rng.choice(VALUES) for key in KEYS if rng.random() < 0.5}


@pytest.mark.parametrize("seed", range(10))
def test_services_found_by_label_are_those_that_select_the_pod(seed):
    rng, listers = Random(seed), MemoryListers()
    services = listers.of(Service)
    selectors = DefaultSelectors(listers)
    for number in range(150):
        name, namespace = f"s{rng.randrange(12)}", rng.choice(["default", "other"])
        if rng.random() < 0.3:
            if services.get(namespace, name) is not None:
                services.remove(namespace, name)
        else:
            selector = None if rng.random() < 0.1 else random_labels(rng)
            meta = ObjectMeta(name=name, namespace=namespace)
            services.put(Service(metadata=meta, spec=ServiceSpec(selector=selector)))
        pod = make_pod(f"p{number}", rng.choice(["default", "other"])).labels(**random_labels(rng))
        assert selectors.of(pod.build()) == plain_selector(pod.build(), listers)
