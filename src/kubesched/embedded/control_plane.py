"""A registry with everything that makes it a cluster: custom resources, default accounts, bootstrap."""

from __future__ import annotations

import random

from kubesched.clock import Clock
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.embedded.bootstrap import bootstrap
from kubesched.embedded.registry.namespace_defaults import DefaultServiceAccounts
from kubesched.embedded.registry.rest_storage import RestStorage
from kubesched.embedded.resources.admission.limit_ranges import check_limits
from kubesched.embedded.resources.admission.quotas import charge_quotas
from kubesched.embedded.resources.catalog import BUILT_IN, ResourceCatalog, previews
from kubesched.embedded.resources.custom_resources import CustomResources
from kubesched.embedded.resources.strategies import STRATEGIES
from kubesched.embedded.storage.store import Store


def build_registry(
    store: Store,
    *,
    clock: Clock,
    rng: random.Random,
    gates: FeatureGates = DEFAULT_GATES,
) -> RestStorage:
    """A registry over a new or a restored store, ready for use."""
    catalog = ResourceCatalog((*BUILT_IN, *previews(gates)))
    registry = RestStorage(store, catalog, clock=clock, rng=rng, kinds=STRATEGIES)
    custom_resources = CustomResources(registry)
    DefaultServiceAccounts(registry)
    registry.checks += [check_limits, charge_quotas]
    custom_resources.resume()
    bootstrap(registry)
    return registry
