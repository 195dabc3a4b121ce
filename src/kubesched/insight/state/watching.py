"""Which kinds the scheduler watches, and which handlers receive their events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kubesched.api.core_v1 import Namespace, Node, Pod
from kubesched.api.kinds import find_event_resource
from kubesched.base.logs import get_logger
from kubesched.client.informers.collection import Selection
from kubesched.client.informers.factory import InformerFactory
from kubesched.client.informers.informer import DeletedFinalStateUnknown, EventHandler
from kubesched.client.informers.sharing import Sharing
from kubesched.config.features import FeatureGates
from kubesched.framework import Plugin
from kubesched.framework.events import Action, Resource
from kubesched.scheduler.factory import Assembly

log = get_logger(__name__)

NOT_FINISHED = Selection(field_selector="status.phase!=Succeeded,status.phase!=Failed")
"""A finished pod arrives as deleted: it uses no resources."""


def ask_for_informers(
    factory: InformerFactory, plugins: Iterable[type[Plugin]], gates: FeatureGates
) -> None:
    """Create the informers before the plugins need their listers; `connect` adds handlers."""
    factory.informer(Pod, selection=NOT_FINISHED, transform=Sharing().share)
    factory.informer(Node)
    factory.informer(Namespace)
    for plugin in plugins:
        for kind in plugin.kinds_to_list(gates):
            factory.informer(kind)


def connect(factory: InformerFactory, assembly: Assembly) -> None:
    """Attach the scheduler's handlers; generic ones only for events that a plugin registered."""
    handlers = assembly.handlers
    factory.informer(Node).add_event_handler(
        EventHandler(
            on_add=handlers.node_added,
            on_update=handlers.node_updated,
            on_delete=lambda gone: handlers.node_deleted(last_state(gone)),
        )
    )
    factory.informer(Namespace).add_event_handler(
        EventHandler(
            on_add=handlers.namespace_changed,
            on_update=lambda _old, new: handlers.namespace_changed(new),
            on_delete=lambda gone: handlers.namespace_deleted(last_state(gone)),
        )
    )
    factory.informer(Pod).add_event_handler(
        EventHandler(
            on_add=handlers.pod_added,
            on_update=handlers.pod_updated,
            on_delete=lambda gone: handlers.pod_deleted(
                last_state(gone), final_state_unknown=isinstance(gone, DeletedFinalStateUnknown)
            ),
        )
    )
    for resource, actions in assembly.hints.actions_by_resource().items():
        if resource == Resource.NODE:
            continue  # handled above
        kind = find_event_resource(resource)
        if kind is None:
            log.error("Incorrect event registration", gvk=resource)
            continue
        factory.informer(kind).add_event_handler(_generic(assembly, resource, actions))
    for kind in factory.kinds():
        if kind.told_as:
            told = assembly.handlers.generic(kind.told_as, Action.UPDATE)
            factory.informer(kind).add_event_handler(_telling(told))


_GROUPS = (Resource.POD_GROUP, Resource.COMPOSITE_POD_GROUP)
"""Kinds whose deletion has to name the object, also if it was missed: their states are kept."""


def _generic(assembly: Assembly, resource: str, actions: Action) -> EventHandler[Any]:
    def changed(action: Action) -> Callable[[object, object], None] | None:
        return assembly.handlers.generic(resource, action) if actions & action else None

    added, updated, deleted = changed(Action.ADD), changed(Action.UPDATE), changed(Action.DELETE)
    state = last_state if resource in _GROUPS else _final_state
    return EventHandler(
        on_add=None if added is None else lambda new: added(None, new),
        on_update=updated,
        on_delete=None if deleted is None else lambda gone: deleted(state(gone), None),
    )


def _telling(told: Callable[[object, object], None]) -> EventHandler[Any]:
    """Tells of any change without its objects, which are not of the kind that is told of."""
    return EventHandler(
        on_add=lambda _new: told(None, None),
        on_update=lambda _old, _new: told(None, None),
        on_delete=lambda _gone: told(None, None),
    )


def _final_state(gone: Any) -> Any:  # noqa: ANN401  # whatever kind the informer is of
    """None if changes before the deletion may have been missed."""
    return None if isinstance(gone, DeletedFinalStateUnknown) else gone


def last_state(gone: Any) -> Any:  # noqa: ANN401  # whatever kind the informer is of
    """The deleted object, in the last state that was seen."""
    return gone.obj if isinstance(gone, DeletedFinalStateUnknown) else gone
