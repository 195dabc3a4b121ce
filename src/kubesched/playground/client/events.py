"""Core v1 events from controllers and kubelets, as shown by `kubectl describe`.

A repeated event increments the `count` of the first one. Events must not slow down other work: a
token bucket limits the writes, excess events are counted and dropped, and a failed write is logged,
not raised. A disabled recorder does nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from kubesched.base.clock import Clock
from kubesched.base.errors import ApiError, NotFound
from kubesched.base.logs import get_logger
from kubesched.base.rate_limit import TokenBucket
from kubesched.playground.apimachinery.objects import JsonObject, object_reference, timestamp
from kubesched.playground.client.local import LocalApi

log = get_logger(__name__)

REMEMBERED_EVENTS = 4096
"""Number of recent events that can still be counted as repeated, as in client-go's correlator."""

DEFAULT_NAMESPACE = "default"  # namespace of events about cluster-scoped objects


@dataclass(slots=True)
class _Remembered:
    namespace: str
    name: str
    count: int


class EventRecorder:
    """Writes events about objects, within a rate limit."""

    def __init__(
        self,
        api: LocalApi,
        clock: Clock,
        *,
        enabled: bool = True,
        per_second: float = 100.0,
        burst: int = 1000,
    ) -> None:
        self._api = api
        self._clock = clock
        self._enabled = enabled
        self._tokens = TokenBucket(per_second, burst, clock=clock)
        self._recent: OrderedDict[tuple[str, ...], _Remembered] = OrderedDict()
        self._sequence = 0
        self.dropped = 0
        """Events not written because of the rate limit or an error."""

    def normal(
        self, obj: JsonObject, component: str, reason: str, message: str, **where: str
    ) -> None:
        """Record a Normal event; `where` may hold `host` and `field_path`."""
        self._record(obj, "Normal", component, reason, message, **where)

    def warning(
        self, obj: JsonObject, component: str, reason: str, message: str, **where: str
    ) -> None:
        """Record a Warning event; `where` may hold `host` and `field_path`."""
        self._record(obj, "Warning", component, reason, message, **where)

    def _record(
        self,
        obj: JsonObject,
        event_type: str,
        component: str,
        reason: str,
        message: str,
        host: str = "",
        field_path: str = "",
    ) -> None:
        if not self._enabled:
            return
        if not self._tokens.take():
            self.dropped += 1
            return
        reference = object_reference(obj)
        if field_path:
            reference["fieldPath"] = field_path
        key = (
            reference["uid"],
            reference["kind"],
            reference["name"],
            component,
            host,
            reason,
            message,
            field_path,
        )
        try:
            known = self._recent.get(key)
            if known is None or not self._repeat(known):
                self._recent[key] = self._create(
                    reference, event_type, component, reason, message, host
                )
            self._recent.move_to_end(key)
            if len(self._recent) > REMEMBERED_EVENTS:
                self._recent.popitem(last=False)
        except ApiError as error:
            # A terminating namespace rejects new events; that must not stop the caller.
            self.dropped += 1
            log.info("Event not written", v=4, reason=reason, about=reference["name"], err=error)

    def _repeat(self, known: _Remembered) -> bool:
        patch = {"count": known.count + 1, "lastTimestamp": timestamp(self._clock.now())}
        try:
            self._api.patch("events", known.namespace, known.name, patch, kind="merge")
        except NotFound:
            return False
        known.count += 1
        return True

    def _create(
        self,
        reference: JsonObject,
        event_type: str,
        component: str,
        reason: str,
        message: str,
        host: str,
    ) -> _Remembered:
        self._sequence += 1
        now = self._clock.now()
        namespace = reference.get("namespace") or DEFAULT_NAMESPACE
        # The sequence number keeps names unique when the clock does not advance between two events.
        name = f"{reference['name']}.{int(now * 1e9) + self._sequence:x}"
        source = {"component": component}
        if host:
            source["host"] = host
        self._api.create_composed(
            "events",
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": reference,
                "reason": reason,
                "message": message,
                "source": source,
                "firstTimestamp": timestamp(now),
                "lastTimestamp": timestamp(now),
                "count": 1,
                "type": event_type,
                "reportingComponent": component,
                "reportingInstance": host,
            },
            namespace,
        )
        return _Remembered(namespace, name, 1)
