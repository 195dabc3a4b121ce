"""Leader election from the configuration: lease, identity and events."""

from __future__ import annotations

import platform
import uuid
from collections.abc import Awaitable, Callable
from random import Random

from kubesched.api.core_v1 import ObjectReference
from kubesched.base.clock import Clock
from kubesched.base.errors import ConfigError, FieldProblem
from kubesched.base.logs import get_logger
from kubesched.client.leader_election import (
    LeaderCallbacks,
    LeaderElectionSettings,
    LeaderElector,
    LeaderMetrics,
)
from kubesched.client.lease_client import RestLeaseClient
from kubesched.client.rest import RestClient
from kubesched.config.types import LeaderElectionConfiguration

log = get_logger(__name__)

SUPPORTED_LOCK = "leases"


def new_identity(random: Random) -> str:
    """`<host name>_<uuid>`, as kube-scheduler names itself."""
    return f"{platform.node()}_{uuid.UUID(int=random.getrandbits(128), version=4)}"


def election_settings(config: LeaderElectionConfiguration, identity: str) -> LeaderElectionSettings:
    """Checked settings.

    Raises:
        ConfigError: no elector can work with these.
    """
    if config.resource_lock != SUPPORTED_LOCK:
        message = (
            f'couldn\'t create resource lock: "{config.resource_lock}" is not supported, use leases'
        )
        raise ConfigError([FieldProblem("", message)])
    settings = LeaderElectionSettings(
        identity=identity,
        namespace=config.resource_namespace,
        name=config.resource_name,
        lease_duration_s=config.lease_duration_s,
        renew_deadline_s=config.renew_deadline_s,
        retry_period_s=config.retry_period_s,
    )
    try:
        settings.check()
    except ConfigError as error:
        message = f"couldn't create leader elector: {error}"
        raise ConfigError([FieldProblem("", message)]) from error
    return settings


def make_elector(
    settings: LeaderElectionSettings,
    client: RestClient,
    lead: Callable[[], Awaitable[None]],
    record_event: Callable[..., object],
    on_stopped_leading: Callable[[], None],
    *,
    clock: Clock,
    random: Random,
    metrics: LeaderMetrics | None,
) -> LeaderElector:
    """A candidate that runs `lead` while leading; `record_event` is as in `EventRecorder`."""

    def record(lease: ObjectReference, message: str) -> None:
        record_event(lease, None, "Normal", "LeaderElection", "", message)

    def new_leader(identity: str) -> None:
        if identity and identity != settings.identity:
            log.info("New leader elected", identity=identity)

    return LeaderElector(
        settings,
        RestLeaseClient(client, namespace=settings.namespace, name=settings.name),
        LeaderCallbacks(
            on_started_leading=lead,
            on_stopped_leading=on_stopped_leading,
            on_new_leader=new_leader,
            record_event=record,
        ),
        clock=clock,
        rng=random,
        metrics=metrics,
    )
