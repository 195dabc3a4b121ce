"""Judges printed fixes: runs their commands in a cluster with controllers, kubelets and the
scheduler, in virtual time.

The cluster is the playground's (store, admission, controllers, kubelets) with kubesched's scheduler
beside it. It shares no code with the trials of `explain`, which model controllers on the
scheduler's own objects. `benchmarks/fixes_that_hold.py` runs it on many situations.
"""

from __future__ import annotations

import json
import os
import shlex
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pending_situations import WORKLOAD, situation

from kubesched.api import codec
from kubesched.api.core_v1 import Pod, PodStatus
from kubesched.api.kinds import kind_of
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.base.clock import ManualClock
from kubesched.base.errors import ApiError, NotFound
from kubesched.insight.explain.model import Fix
from kubesched.insight.explain.selection import no_node
from kubesched.insight.explain.sources import explainer_of
from kubesched.insight.state.cluster_state import KINDS, ClusterState
from kubesched.insight.state.planned_cluster import SteppedCluster
from kubesched.playground.client.local import LocalApi
from kubesched.playground.controller_manager import ControllerOptions, start_all
from kubesched.playground.controllers.volumes import StorageDriver
from kubesched.playground.kubelet.options import KubeletOptions
from kubesched.playground.registry.patching.json_patch import apply_json_patch

Json = dict[str, Any]
BEFORE_S = 120.0
AFTER_S = 400.0
"""Long enough for rollouts and for the pods that are tried again after five minutes."""


class _Bridged(SteppedCluster):
    """The scheduler over the objects of an API server: reads by its events, writes by its verbs."""

    def __init__(self, api: LocalApi, clock: ManualClock) -> None:
        self.api = api
        self._is_loading = True
        super().__init__((), clock=clock, remembers=False, measures_plugins=False)
        for kind in KINDS:
            if api.catalog.find_kind(kind.api_version, kind.kind) is not None:
                api.subscribe(kind.resource, self._follow(kind.record))

    def _follow(self, record: type[Any]) -> Any:
        def follow(change: str, obj: Json, _old: Json | None) -> None:
            new = codec.convert(obj, record)
            old = self.find(record, new.metadata.namespace, new.metadata.name)
            is_over = record is Pod and new.status.phase in ("Succeeded", "Failed")
            if change == "DELETED" or is_over:
                if old is not None:
                    super(_Bridged, self).delete(old)
            else:
                self._put(old, new)

        return follow

    # The scheduler's writes.

    def bound(self, pod: Pod, node_name: str) -> None:
        self.api.bind(pod.metadata.namespace, pod.metadata.name, node_name)

    def patched(self, pod: Pod, status: PodStatus) -> None:
        before = self.changes
        body = {
            "conditions": codec.to_json(status).get("conditions") or [],
            "nominatedNodeName": status.nominated_node_name or None,
        }
        self.api.patch(
            "pods",
            pod.metadata.namespace,
            pod.metadata.name,
            {"status": body},
            subresource="status",
        )
        self.changes = before + (status.nominated_node_name != pod.status.nominated_node_name)

    def evicted(self, pod: Pod) -> None:
        self.api.delete("pods", pod.metadata.namespace, pod.metadata.name, uid=pod.metadata.uid)

    def put(self, obj: Any) -> Any:
        resource, meta = kind_of(type(obj)).resource, obj.metadata
        body = codec.to_json(obj)
        for field_ in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
            body["metadata"].pop(field_, None)
        if self.find(type(obj), meta.namespace, meta.name) is None:
            self.api.create(resource, body, meta.namespace or None)
        else:
            status = body.pop("status", None)
            self.api.patch(resource, meta.namespace, meta.name, body)
            if isinstance(obj, ResourceClaim) and status is not None:
                patch = {"status": status}
                self.api.patch(resource, meta.namespace, meta.name, patch, subresource="status")
        return self.find(type(obj), meta.namespace, meta.name)


class Judged:
    """A cluster of a situation."""

    def __init__(self, seed: int) -> None:
        self.clock = ManualClock()
        rng = Random(seed)
        self.api = LocalApi.in_memory(clock=self.clock, rng=rng)
        options = ControllerOptions(
            kubelet=KubeletOptions(heartbeat_s=200.0), storage=(StorageDriver(),), events=False
        )
        self.cast = start_all(self.api, self.clock, rng, options)
        self.cast.settle()
        self.scheduler = _Bridged(self.api, self.clock)
        for resource, obj in situation(seed):
            info = self.api.catalog.get(resource_key(self.api, resource))
            self.api.create(
                info, json.loads(json.dumps(obj)), "default" if info.namespaced else None
            )
        self.run(BEFORE_S)

    def close(self) -> None:
        self.cast.disconnect()
        self.scheduler.close()

    def run(self, seconds: float) -> None:
        clock, scheduler = self.clock, self.scheduler
        end = clock.monotonic() + seconds
        while True:
            while self.cast.settle() or self._schedule():
                pass
            now = clock.monotonic()
            wait = self.cast.next_due_s()
            dues = [now + wait] if wait is not None else []
            due, timer = scheduler._next_due(), scheduler.loop.next_timer_at
            dues += [due] if due is not None else []
            dues += [now + timer - scheduler.loop.time()] if timer is not None else []
            if not dues or min(dues) > end:
                break
            self._pass(max(min(dues) - now, 0.001))
        self._pass(max(0.0, end - clock.monotonic()))
        while self.cast.settle() or self._schedule():
            pass

    def _pass(self, seconds: float) -> None:
        self.scheduler.loop.stall(seconds)
        self.scheduler.jump_to(self.clock.monotonic() + seconds)
        self.scheduler.work()

    def _schedule(self) -> int:
        count = 0
        while self.scheduler.attempt():
            count += 1
        before = self.scheduler.changes
        self.scheduler.work()
        return count + self.scheduler.finish_background() + (self.scheduler.changes != before)

    def pods(self) -> list[Json]:
        return [
            pod
            for pod in self.api.list("pods")[0]
            if not pod["metadata"].get("deletionTimestamp")
            and pod["status"].get("phase") not in ("Succeeded", "Failed")
        ]

    def placed(self, workload: str) -> int:
        return sum(
            pod["metadata"]["labels"].get(WORKLOAD) == workload
            and bool(pod["spec"].get("nodeName"))
            for pod in self.pods()
        )

    def state(self) -> ClusterState:
        state = ClusterState("judged")
        for kind in KINDS:
            if self.api.catalog.find_kind(kind.api_version, kind.kind) is not None:
                for obj in self.api.list(kind.resource)[0]:
                    state.put(codec.convert(obj, kind.record))
        return state

    # -- kubectl -----------------------------------------------------------------------------------

    def apply(self, fix: Fix) -> None:
        """Do what the fix says. Raises NotJudged if it says nothing that can be done."""
        added = [change for change in fix.changes if change.kind == "AddNode"]
        is_what_if = any(change.kind.startswith("Without") for change in fix.changes)
        if is_what_if or (len(added) < len(fix.changes) and not fix.commands):
            raise NotJudged("no command")
        for change in added:
            words = change.text.split()
            self._add_nodes(1 if words[1] == "a" else int(words[1]), words[-1])
        for command in fix.commands:
            self._kubectl(command)

    def _add_nodes(self, count: int, like: str) -> None:
        node = self.api.get("nodes", None, like)
        for at in range(count):
            name = f"{like}-added-{at}"
            labels = {**node["metadata"]["labels"], "kubernetes.io/hostname": name}
            taints = [
                taint
                for taint in node["spec"].get("taints") or ()
                if not taint["key"].startswith("node.kubernetes.io/")
            ]
            sizes = {key: node["status"][key] for key in ("capacity", "allocatable")}
            self.api.create(
                "nodes",
                {
                    "metadata": {"name": name, "labels": labels},
                    "spec": {"taints": taints},
                    "status": sizes,
                },
            )
            for slice_ in self.api.list(resource_key(self.api, "resourceslice"))[0]:
                if slice_["spec"].get("nodeName") == like:
                    spec = {**slice_["spec"], "nodeName": name}
                    spec["pool"] = {**spec["pool"], "name": name}
                    self.api.create(
                        resource_key(self.api, "resourceslice"),
                        {"metadata": {"name": f"slice-{name}"}, "spec": spec},
                    )

    def _kubectl(self, command: str) -> None:
        words = shlex.split(command)
        if "|" in words:
            self._recreate(words)
            return
        assert words[0] == "kubectl", command
        verb, rest = words[1], words[2:]
        options = {word: rest[at + 1] for at, word in enumerate(rest) if word in ("-n", "-p")}
        plain = [
            word
            for at, word in enumerate(rest)
            if not word.startswith("-") and (at == 0 or rest[at - 1] not in ("-n", "-p"))
        ]
        if verb == "uncordon":
            self.api.patch("nodes", None, plain[0], {"spec": {"unschedulable": None}})
        elif verb == "label" and plain[0] == "node":
            key, _, value = plain[2].partition("=")
            self.api.patch("nodes", None, plain[1], {"metadata": {"labels": {key: value}}})
        elif verb == "taint" and plain[0] == "node":
            self._untaint(plain[1], plain[2])
        elif verb == "delete" and plain[0] == "pod":
            for name in plain[1:]:
                self.api.delete("pods", options["-n"], name)
        elif verb == "patch":
            resource = resource_key(self.api, plain[0])
            self.api.patch(resource, options["-n"], plain[1], json.loads(options["-p"]), "json")
        else:
            raise NotJudged(f"kubectl {verb} {plain[0] if plain else ''}")

    def _untaint(self, name: str, text: str) -> None:
        assert text.endswith("-"), text
        key = text[:-1].partition(":")[0].partition("=")[0]
        taints = self.api.get("nodes", None, name)["spec"].get("taints") or []
        kept = [taint for taint in taints if taint["key"] != key]
        self.api.patch("nodes", None, name, {"spec": {"taints": kept or None}})

    def _recreate(self, words: list[str]) -> None:
        """`kubectl get … | kubectl patch --local … | kubectl replace --force -f -`, or
        unpatched.
        """
        assert words[1] == "get", words
        assert words[-4:] == ["replace", "--force", "-f", "-"], words
        resource, name = resource_key(self.api, words[2]), words[3]
        namespace = words[words.index("-n") + 1]
        obj = json.loads(json.dumps(self.api.get(resource, namespace, name)))
        if "-p" in words:
            obj = apply_json_patch(obj, json.loads(words[words.index("-p") + 1]))
        self.api.delete(resource, namespace, name, grace_period_s=0, propagation="Background")
        self.run(1)
        for field_ in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
            obj["metadata"].pop(field_, None)
        obj.pop("status", None)
        self.api.create(resource, obj, namespace)


class NotJudged(Exception):
    """A fix that cannot be carried out by commands."""


def resource_key(api: LocalApi, word: str) -> str:
    """`deployment` or `deployments` -> `deployments.apps`."""
    for info in api.catalog:
        if word.lower() in (info.kind.lower(), info.key.partition(".")[0]):
            return info.key
    raise NotJudged(f"resource {word}")


# -- judging ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Verdicts:
    """What came of the fixes of a situation."""

    pending: int = 0
    held: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


def judge(seed: int, most_pods: int = 2) -> Verdicts:
    """Explain pending pods of a situation, one of each workload, and try every fix that is
    printed.
    """
    verdicts = Verdicts()
    world = Judged(seed)
    try:
        state = world.state()
        waiting = {
            pod["metadata"]["labels"].get(WORKLOAD, ""): pod
            for pod in reversed(world.pods())
            if not pod["spec"].get("nodeName")
        }
        verdicts.pending = len(waiting)
        for name in sorted(waiting)[:most_pods]:
            meta = waiting[name]["metadata"]
            pod = state.get(Pod, meta["namespace"], meta["name"])
            if pod is None:
                continue
            explanation = explainer_of(state).explain(pod, no_node, fix=True)
            for fix in explanation.fixes or ():
                _judge_fix(seed, name, fix, world, verdicts)
        return verdicts
    finally:
        world.close()


def _tried(world: Judged, name: str, fix: Fix) -> Json:
    """How many pods of the workload are placed after the fix, or why it was not carried out."""
    try:
        world.apply(fix)
        world.run(AFTER_S)
    except NotJudged as error:
        return {"skipped": str(error)}
    except (ApiError, NotFound) as error:
        return {"refused": f"{error}: {fix.commands}"}
    return {"placed": world.placed(name)}


def _in_a_copy(work: Callable[[], Json]) -> Json:
    """What the work returns in a copy of this process, which ends with it."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Idle threads of executors, which other tests left: the copy needs none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            with os.fdopen(writing, "wb") as answer:
                answer.write(json.dumps(work()).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        text = answer.read()
    assert os.waitpid(child, 0)[1] == 0, "the copy broke"
    result: Json = json.loads(text)
    return result


def _judge_fix(seed: int, name: str, fix: Fix, world: Judged, verdicts: Verdicts) -> None:
    kinds = "+".join(sorted(change.kind for change in fix.changes))
    if fix.places is None:
        verdicts.skipped[f"{kinds}: promises nothing"] += 1
        return
    before = world.placed(name)
    tried = _in_a_copy(lambda: _tried(world, name, fix))
    if "skipped" in tried:
        verdicts.skipped[f"{kinds}: {tried['skipped']}"] += 1
        return
    if "refused" in tried:
        verdicts.failed.append(f"seed {seed} {name}: {kinds}: refused: {tried['refused']}")
        return
    after = tried["placed"]
    if after >= before + fix.places:
        verdicts.held[kinds] += 1
    else:
        texts = ", ".join(change.text for change in fix.changes)
        verdicts.failed.append(
            f"seed {seed} {name}: {texts}: promised {fix.places} of {fix.wanted}, {after - before} "
            "came"
        )
