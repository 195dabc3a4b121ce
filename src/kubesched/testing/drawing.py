"""Clusters, pods and changes for `check_plugin`, drawn by Hypothesis.

A plugin that reads the label `rack` is only tested by nodes that have one. The words of labels,
annotations, taints and resources are therefore those in the plugin's arguments and in the code of
its module, besides a few that every cluster has.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any, TypeVar

import msgspec
from hypothesis import strategies as st
from msgspec import structs

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.kinds import kind_of
from kubesched.api.names import key_of
from kubesched.framework.events import Action, ClusterEvent, Resource
from kubesched.framework.interfaces import Plugin
from kubesched.scheduler.change_events import node_changes, pod_changes
from kubesched.testing.builders import HOSTNAME, ZONE, NodeBuilder, PodBuilder

P = TypeVar("P", Pod, Node)
T = TypeVar("T")

_WORD = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_KEY = re.compile(rf"(?:{_WORD.pattern}/)?{_WORD.pattern}")
_MAX_WORDS = 8
_TAINTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_EXTENDED = "example.com/device"
_NAMES = ("n1", "n2", "n3")
_PLACED = ("placed-0", "placed-1", "placed-2")
_WITHOUT_PORTS = _PLACED[1:]
"""No two pods on a node can have the same host port."""
_MAX_LABELS = 4
_BYTES = st.binary(min_size=32, max_size=32)
"""Enough for every field of a pod or a node: what is missing counts as zero."""


@dataclass(frozen=True)
class World:
    """The objects of a cluster before anything happens."""

    nodes: Sequence[Node]
    placed: Sequence[Pod]
    """Pods with a node."""
    objects: Sequence[Any]
    """Of other kinds, for listers."""


@dataclass(frozen=True)
class Change:
    """One change of a cluster: the events that the scheduler sees, and the world afterwards."""

    text: str
    after: World
    node: str = ""
    """The node that changed, or whose pods did."""
    is_of_node: bool = False
    """True if the node object changed."""
    old: Any = None
    new: Any = None
    resource: str = ""
    actions: Sequence[Action] = ()
    pod: Pod | None = None
    """The waiting pod's new version, if it is what changed."""
    seconds: float = 0.0
    """For a change of nothing but the time."""

    @property
    def events(self) -> list[ClusterEvent]:
        return [ClusterEvent(self.resource, action) for action in self.actions]


class Tape:
    """Choices made by the bytes of one draw; zero is the first and simplest.

    Hypothesis takes milliseconds for an object drawn field by field, and shrinks bytes as well.
    """

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self._bytes = iter(data.draw(_BYTES))

    def pick(self, options: Sequence[T]) -> T:
        return options[next(self._bytes, 0) % len(options)]

    def flag(self) -> bool:
        return next(self._bytes, 0) > 127


@dataclass(frozen=True)
class Drawing:
    """Draws worlds, waiting pods and changes."""

    keys: Sequence[str]
    values: Sequence[str]
    objects: Sequence[Any] = ()
    nodes: st.SearchStrategy[Node] | None = None
    pods: st.SearchStrategy[Pod] | None = None

    def _words(self, tape: Tape) -> dict[str, str]:
        pairs = [(tape.pick(self.keys), tape.pick(self.values)) for _ in range(_MAX_LABELS)]
        return dict(pairs[: tape.pick(range(_MAX_LABELS + 1))])

    def node(self, data: st.DataObject, name: str) -> Node:
        if self.nodes is not None:
            return _renamed(data.draw(self.nodes), name)
        tape, builder = Tape(data), NodeBuilder(name).uid(f"uid-{name}")
        for key, value in self._words(tape).items():
            builder.label(key, value)
        builder.capacity(cpu=tape.pick("41"), memory="8Gi", pods=tape.pick(("110", "1")))
        if tape.flag():
            builder.offers(_EXTENDED, "2")
        taint = tape.pick(self.keys), tape.pick(self.values), tape.pick(_TAINTS)
        if tape.flag():
            builder.taint(*taint)
        for key, value in self._words(tape).items():
            builder.annotation(key, value)
        if tape.flag():
            builder.unschedulable()
        return builder.build()

    def pod(self, data: st.DataObject, name: str, node: str = "") -> Pod:
        if self.pods is not None:
            pod = _renamed(data.draw(self.pods), name)
        else:
            tape = Tape(data)
            builder = PodBuilder(name, tape.pick(("default", "other")))
            has_ports = name not in _WITHOUT_PORTS
            self._fill(tape, builder.uid(f"uid-{name}"), has_ports=has_ports)
            pod = builder.build()
        return structs.replace(pod, spec=structs.replace(pod.spec, node_name=node))

    def _fill(self, tape: Tape, builder: PodBuilder, *, has_ports: bool) -> None:
        for key, value in self._words(tape).items():
            builder.label(key, value)
        for key, value in self._words(tape).items():
            builder.annotation(key, value)
        if cpu := tape.pick(("", "1", "3")):
            builder.cpu(cpu)
        if tape.flag():
            builder.request(_EXTENDED, "1")
        port = tape.pick((0, 80, 8080))
        if port and has_ports:
            builder.host_port(port)
        toleration = tape.pick(self.keys), tape.pick(("", *self.values))
        if tape.flag():
            builder.tolerates(*toleration)
        selector = {tape.pick(self.keys): tape.pick(self.values)}
        if tape.flag():
            builder.node_selector(**selector)
        builder.priority(tape.pick((0, 10)))

    def world(self, data: st.DataObject) -> World:
        tape = Tape(data)
        names = _NAMES[: 1 + tape.pick(range(3))]
        nodes = [self.node(data, name) for name in names]
        on = [(pod, tape.pick(names)) for pod in _PLACED][: tape.pick(range(len(_PLACED) + 1))]
        placed = [self.pod(data, pod, name) for pod, name in on]
        return World(nodes, placed, [obj for obj in self.objects if tape.flag()])

    def change(self, data: st.DataObject, world: World, pod: Pod) -> Change:
        """One change of any kind that the world allows."""
        put = self._node_put  # the most fruitful kind
        kinds: list[Callable[[Tape, World], Change]] = [put, put, put, self._pod_added]
        kinds += [self._node_deleted] if len(world.nodes) > 1 else []
        kinds += [self._pod_deleted, self._pod_relabelled] if world.placed else []
        kinds += [self._object] if self.objects else []
        kinds += [lambda _tape, world: Change("an hour passes", world, seconds=3600.0)]
        kinds += [lambda tape, world: self._own(tape, world, pod)] * 2
        tape = Tape(data)
        return tape.pick(kinds)(tape, world)

    def _node_put(self, tape: Tape, world: World) -> Change:
        there = [node.metadata.name for node in world.nodes]
        new = self.node(tape.data, tape.pick([*there, *_NAMES]))
        name = new.metadata.name
        old = next((node for node in world.nodes if node.metadata.name == name), None)
        if old is not None:  # mostly one part, so that one event tells of it
            labelled = structs.replace(old.metadata, labels=new.metadata.labels)
            label: dict[str, Any] = {"metadata": labelled}
            parts = (label, label, {"spec": new.spec}, {"status": new.status}, structs.asdict(new))
            new = structs.replace(old, **tape.pick(parts))
        nodes = [*(node for node in world.nodes if node is not old), new]
        actions = [Action.ADD] if old is None else node_changes(old, new)
        text = f"node {name} is {'added' if old is None else 'changed'}: {shown(new)}"
        after = replace(world, nodes=nodes)
        return Change(text, after, name, True, old, new, Resource.NODE, actions)

    def _node_deleted(self, tape: Tape, world: World) -> Change:
        old = tape.pick(world.nodes)
        name = old.metadata.name
        nodes = [node for node in world.nodes if node is not old]
        placed = [pod for pod in world.placed if pod.spec.node_name != name]
        after, text = replace(world, nodes=nodes, placed=placed), f"node {name} is deleted"
        return Change(text, after, name, True, old, None, Resource.NODE, [Action.DELETE])

    def _pod_added(self, tape: Tape, world: World) -> Change:
        name = tape.pick(world.nodes).metadata.name
        new = self.pod(tape.data, "added", name)
        after = replace(world, placed=[*world.placed, new])
        text = f"pod {new.metadata.name} is placed on {name}: {shown(new)}"
        return Change(text, after, name, False, None, new, Resource.ASSIGNED_POD, [Action.ADD])

    def _pod_deleted(self, tape: Tape, world: World) -> Change:
        old = tape.pick(world.placed)
        after = replace(world, placed=[pod for pod in world.placed if pod is not old])
        text, name = f"pod {old.metadata.name} is deleted: {shown(old)}", old.spec.node_name
        return Change(text, after, name, False, old, None, Resource.ASSIGNED_POD, [Action.DELETE])

    def _pod_relabelled(self, tape: Tape, world: World) -> Change:
        old = tape.pick(world.placed)
        meta = structs.replace(old.metadata, labels=self._words(tape))
        new = structs.replace(old, metadata=meta)
        after = replace(world, placed=[new if pod is old else pod for pod in world.placed])
        text, name = f"pod {old.metadata.name} is changed: {shown(new)}", old.spec.node_name
        actions = pod_changes(old, new)
        return Change(text, after, name, False, old, new, Resource.ASSIGNED_POD, actions)

    def _object(self, tape: Tape, world: World) -> Change:
        obj = tape.pick(self.objects)
        is_there = obj in world.objects
        objects = [other for other in world.objects if other is not obj]
        after = replace(world, objects=objects if is_there else [*objects, obj])
        verb, action = ("deleted", Action.DELETE) if is_there else ("added", Action.ADD)
        text = f"{type(obj).__name__} {key_of(obj.metadata)} is {verb}"
        old, new = (obj, None) if is_there else (None, obj)
        resource = kind_of(type(obj)).event_resource
        return Change(text, after, "", False, old, new, resource, [action])

    def _own(self, tape: Tape, world: World, pod: Pod) -> Change:
        words = {"labels": self._words(tape), "annotations": self._words(tape)}
        new = structs.replace(pod, metadata=structs.replace(pod.metadata, **words))
        text, actions = f"the pod is changed: {shown(new)}", pod_changes(pod, new)
        return Change(text, world, "", False, pod, new, Resource.TARGET_POD, actions, new)

    def twin(self, data: st.DataObject, pod: Pod) -> Pod:
        """A pod with the same spec, its own name and annotations, and often the same labels."""
        tape, name = Tape(data), f"{pod.metadata.name}-twin"
        annotations, drawn = self._words(tape), self._words(tape)
        labels = drawn if tape.flag() else pod.metadata.labels
        meta = structs.replace(
            pod.metadata, name=name, uid=f"uid-{name}", annotations=annotations, labels=labels
        )
        return structs.replace(pod, metadata=meta)


def _renamed(obj: P, name: str) -> P:
    meta = structs.replace(obj.metadata, name=name, uid=f"uid-{name}")
    return structs.replace(obj, metadata=meta)


def drawing_for(
    plugin: type[Plugin],
    args: object,
    *,
    words: Sequence[str] = (),
    objects: Sequence[Any] = (),
    nodes: st.SearchStrategy[Node] | None = None,
    pods: st.SearchStrategy[Pod] | None = None,
) -> Drawing:
    """Strategies in the plugin's own words."""
    named = [*words, *_strings(args)]
    own = dict.fromkeys(word for word in (*named, *_code_words(plugin)) if _KEY.fullmatch(word))
    keys = [word for word in own if word != plugin.name][:_MAX_WORDS]
    often = [word for word in keys if word in named]
    return Drawing(
        [*keys, *often, "app", ZONE, HOSTNAME],
        [*(word for word in (*keys, *often) if "/" not in word), "0", "1", "7"],
        objects,
        nodes,
        pods,
    )


def _strings(value: Any) -> Iterator[str]:  # noqa: ANN401  # any plugin's arguments
    """The texts and numbers in plain data, in a dataclass or in a record."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, int | float):
        yield str(value)
    elif isinstance(value, dict):
        yield from (text for item in (*value.keys(), *value.values()) for text in _strings(item))
    elif isinstance(value, list | tuple | frozenset | set):
        yield from sorted(text for item in value for text in _strings(item))
    elif value is not None:
        try:
            yield from _strings(list(msgspec.to_builtins(value).values()))
        except (TypeError, AttributeError):
            return


def _code_words(plugin: type[Plugin]) -> Iterator[str]:
    """The texts in the plugin's methods, then those in the rest of its module."""
    own = [cls for cls in plugin.__mro__ if not cls.__module__.startswith(("kubesched.", "abc"))]
    modules = [vars(sys.modules[cls.__module__]) for cls in own if cls.__module__ in sys.modules]
    for names in (*map(vars, own), *modules[:1]):
        for name, value in names.items():
            code = getattr(value, "__code__", None)
            if isinstance(code, CodeType):
                yield from _constants(code)
            elif isinstance(value, str) and not name.startswith("__"):
                yield value


def _constants(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _constants(constant)
        elif not isinstance(constant, bool):
            yield from _strings(constant)


def shown(obj: Any) -> str:  # noqa: ANN401  # any record
    """A record on one line, without empty fields."""
    return msgspec.json.encode(_pruned(msgspec.to_builtins(obj))).decode()


def _pruned(value: Any) -> Any:  # noqa: ANN401  # plain data
    if isinstance(value, dict):
        left = {key: _pruned(item) for key, item in value.items() if key not in _HIDDEN}
        return {key: item for key, item in left.items() if item not in ({}, [], "", None)}
    return [_pruned(item) for item in value] if isinstance(value, list) else value


_HIDDEN = frozenset(
    {"kind", "apiVersion", "uid", "resourceVersion", "schedulerName", "image", "capacity"}
)
