"""Gymnasium environments: a policy places the pods of a trace, with the exact filters as its mask.

`kubesched/Placement-v0`: an action is a node. `kubesched/Weights-v0`: an action is a weight per
score plugin; the scheduler's own scores then choose the node.

An episode is a trace. Each step places one pod. Between steps time goes on: pods come, and end
after their lifetime. A pod that fits nowhere waits until a pod has ended. There is no backoff and
no preemption: a policy learns where to put a pod, not whom to evict.

Observations are two arrays with values from 0 to 1: `nodes` with a row per node (`node_features`),
and `pod` (`pod_features`). `info["action_mask"]` and `action_masks()` say which nodes are feasible.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import gymnasium
import msgspec
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from kubesched.api.core_v1 import Pod
from kubesched.base.errors import KubeschedError
from kubesched.base.logs import silence
from kubesched.config.features import DEFAULT_GATES
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.status import Status
from kubesched.insight.state.cluster import registry_with
from kubesched.lab.library.cluster import Config, configuration
from kubesched.lab.library.comparing import TraceSource, executor_of, seeds_of, trace_from
from kubesched.lab.library.objects import InputError
from kubesched.lab.library.tables import Table
from kubesched.lab.traces.fragmentation import GpuFragmentation, plain
from kubesched.lab.traces.player import Cell, replayed_cluster
from kubesched.lab.traces.sample import sample_trace
from kubesched.lab.traces.trace import Arrival, Trace

PODS: Final = "pods"
SCALE: Final = 100
"""A weight of 1.0 counts this much."""

Observation = dict[str, npt.NDArray[np.float32]]
Reward = Callable[["PlacementEnv"], float]
Policy = Callable[[Observation, npt.NDArray[np.bool_]], Any]
"""Observation and mask -> action."""


# -- rewards ---------------------------------------------------------------------------------------


def packing(env: PlacementEnv) -> float:
    """-1 for a pod that opened a node that had none."""
    return -1.0 if env.opened else 0.0


def waits(env: PlacementEnv) -> float:
    """Minus the hours that the pod waited."""
    return -env.waited_s / 3600.0


def cost(env: PlacementEnv) -> float:
    """Minus the node hours in use since the last step."""
    return -env.node_hours


def fragmentation(env: PlacementEnv) -> float:
    """Minus what the placement added to fragmentation.

    Of shared GPUs as published with FGD; else the share of free cpu that lies on used nodes.
    """
    return env.fragmented_before - env.fragmented


REWARDS: Final[Mapping[str, Reward]] = {
    "cost": cost,
    "fragmentation": fragmentation,
    "packing": packing,
    "waits": waits,
}


class PlacementEnv(gymnasium.Env[Any, Any]):
    """Places the pods of a trace."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  # gymnasium's own type

    def __init__(
        self,
        trace: TraceSource | None = None,
        *,
        reward: str | Reward = "packing",
        features: Sequence[str] = ("free", "used"),
        config: Config = None,
        plugins: Sequence[Any] = (),
        render_mode: str | None = None,
    ) -> None:
        """`trace` is a trace, its files, or a function that makes one from a seed.

        `features` of nodes: `free` (share of each resource), `used` (has a pod), `pods` (share of
        the pods that it may run).

        Raises:
            InputError: an unknown reward or feature, or a trace in which nodes come or go.
        """
        del render_mode
        if isinstance(reward, str) and reward not in REWARDS:
            raise InputError(f"reward {reward!r}: there are {', '.join(REWARDS)}, or a function")
        if unknown := set(features) - {"free", "used", PODS}:
            raise InputError(f"features: {unknown.pop()!r} is none of free, used, pods")
        self._reward = REWARDS[reward] if isinstance(reward, str) else reward
        self._tracks_fragments = self._reward is fragmentation
        self._features = tuple(features)
        self._config = configuration(config, DEFAULT_GATES)
        self._plugins = plugins
        self._source = trace if trace is None or callable(trace) else trace_from(trace)
        self._world: Any = None
        self._begin(trace_from(self._source or _small_sample))
        nodes, width = self._nodes.shape
        self._node_count = nodes
        self.observation_space = spaces.Dict(
            {
                "nodes": spaces.Box(0.0, 1.0, (nodes, width), np.float32),
                "pod": spaces.Box(0.0, 1.0, (len(self.pod_features),), np.float32),
            }
        )
        self.action_space = self._actions(nodes)

    def _actions(self, nodes: int) -> spaces.Space[Any]:
        return _Feasible(self, nodes)

    def _begin(self, trace: Trace) -> None:
        self.close()
        arrivals = [event for event in trace.events if isinstance(event, Arrival)]
        if len(arrivals) != len(trace.events):
            raise InputError(
                f"{trace.name}: nodes or pods change in it; an environment needs fixed ones"
            )
        registry = registry_with(self._plugins) if self._plugins else None
        cell = Cell(name="environment", config=self._config)
        self._world, self.notes = replayed_cluster(trace, cell, registry)
        self._arrivals = arrivals
        self._next_arrival = 0
        self._ends: list[tuple[float, int, PodInfo, str]] = []
        """Heap of (time, number, placed pod, node)."""
        self._waiting: list[Arrival] = []
        self._has_room = False
        self.table = self._world.assembly.table
        self.table.refresh()
        self._framework = next(iter(self._world.assembly.frameworks.values()))
        self._algorithm = self._world.assembly.scheduler.cycle.algorithm
        self.time_s, self.node_hours, self.waited_s, self.opened = 0.0, 0.0, 0.0, False
        self.placed = 0
        self._used = int(np.count_nonzero(self.table.pod_count.array[: self.table.high_water]))
        ledger = self._world.ledger
        pods = [arrival.pod for arrival in arrivals]
        self._gpus = GpuFragmentation(pods, self.table, ledger) if ledger is not None else None
        self.fragmented = self.fragmented_before = self._fragmentation()
        self._lay_out()

    def _lay_out(self) -> None:
        """Names of the features, and the arrays that hold them."""
        table, count = self.table, self.table.high_water
        offered = {
            name: table.allocatable[index].array[:count]
            for name, index in table.resource_index.items()
        }
        self.resources = [name for name, amounts in offered.items() if amounts.any()]
        self._largest = np.array([max(1, offered[name].max()) for name in self.resources])
        names = {
            "free": [f"free {name}" for name in self.resources],
            "used": ["used"],
            PODS: [PODS],
        }
        self.node_features = [name for feature in self._features for name in names[feature]]
        self.pod_features = [f"wants {name}" for name in self.resources]
        self._indices = [table.resource_index[name] for name in self.resources]
        self._nodes: npt.NDArray[np.float32] = np.zeros(
            (count, len(self.node_features)), np.float32
        )
        self._pod: npt.NDArray[np.float32] = np.zeros(len(self.pod_features), np.float32)
        self._mask: npt.NDArray[np.bool_] = np.zeros(count, np.bool_)
        for row in range(count):
            self._describe(row)

    def _describe(self, row: int) -> None:
        """Write a node's features."""
        table, at = self.table, 0
        pods = int(table.pod_count.array[row])
        for feature in self._features:
            if feature == "free":
                for index in self._indices:
                    offered = int(table.allocatable[index].array[row])
                    free = offered - int(table.requested[index].array[row])
                    self._nodes[row, at] = max(0, free) / offered if offered else 0.0
                    at += 1
            else:
                most = int(table.allowed_pods.array[row]) if feature == PODS else 1
                self._nodes[row, at] = min(1.0, pods / most) if most else 1.0
                at += 1

    # -- gymnasium ---------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        del options
        self._begin(trace_from(self._source or _small_sample, int(self.np_random.integers(2**31))))
        if len(self._nodes) != self._node_count:
            raise InputError("all traces of an environment have the same number of nodes")
        if not self._go_on():
            raise InputError("no pod of the trace fits on any node")
        return self._observation(), self._info()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:  # noqa: ANN401  # of either space
        if not self._mask.any():
            raise InputError("step: no pod is at hand; reset begins an episode")
        self._place(self._row_for(action))
        reward = self._reward(self)
        if not isinstance(reward, float | int):
            raise InputError(f"reward: {reward!r} is no number")
        is_over = not self._go_on()
        return self._observation(), float(reward), is_over, False, self._info()

    def close(self) -> None:
        if self._world is not None:
            self._world.close()
            self._world = None

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Feasible nodes for the pod at hand; the name is the one that sb3-contrib calls."""
        return self._mask

    def _row_for(self, action: Any) -> int:  # noqa: ANN401  # as above
        row = int(_numbers(action, np.int64, ()))
        if not 0 <= row < len(self._mask) or not self._mask[row]:
            name = self.table.names[row] if 0 <= row < len(self._mask) else row
            key = self._info_of.key
            raise InputError(
                f"action {action}: node {name} does not take pod {key}; see action_masks"
            )
        return row

    def _observation(self) -> Observation:
        return {"nodes": self._nodes.copy(), "pod": self._pod.copy()}

    def _info(self) -> dict[str, Any]:
        return {
            "action_mask": self._mask.copy(),
            "time": self.time_s,
            "placed": self.placed,
            "waiting": len(self._waiting),
            "nodes_used": self._used,
        }

    # -- the episode -------------------------------------------------------------------------------

    def _go_on(self) -> bool:
        """Go to the next pod that fits somewhere; False at the end of the trace."""
        self.node_hours = 0.0
        while True:
            if self._has_room and self._take_waiting():
                return True
            arrival = None
            if self._next_arrival < len(self._arrivals):
                arrival = self._arrivals[self._next_arrival]
            end_s = self._ends[0][0] if self._ends else None
            if arrival is None and (end_s is None or not self._waiting):
                self._mask[:] = False
                return False
            if arrival is None or (end_s is not None and end_s <= arrival.time_s):
                assert end_s is not None, "there is an end, or an arrival"
                self._pass_until(end_s)
                self._end_one()
                continue
            self._pass_until(arrival.time_s)
            self._next_arrival += 1
            if self._fits(arrival):
                return True
            self._waiting.append(arrival)

    def _take_waiting(self) -> bool:
        """Try waiting pods in order, one of each kind; True if one fits."""
        tried = set[int]()
        for at, arrival in enumerate(self._waiting):
            if id(arrival.pod.spec) in tried:
                continue
            tried.add(id(arrival.pod.spec))
            if self._fits(arrival):
                del self._waiting[at]
                return True
        self._has_room = False
        return False

    def _fits(self, arrival: Arrival) -> bool:
        info, state = PodInfo(arrival.pod), CycleState()
        passing = self._algorithm.feasible(self._framework, state, info)
        if isinstance(passing, Status):
            raise InputError(f"pod {info.key}: {passing.message}")
        if not passing.any():
            return False
        self._current, self._info_of, self._state = arrival, info, state
        self._mask[:] = passing
        for at, name in enumerate(self.resources):
            wanted = info.requests.get(name)
            self._pod[at] = min(1.0, wanted / self._largest[at])
        return True

    def _place(self, row: int) -> None:
        table, arrival = self.table, self._current
        self.waited_s = self.time_s - arrival.time_s
        self.fragmented_before = self.fragmented
        self.opened = not table.pod_count.array[row]
        self._used += self.opened
        name = table.names[row]
        placed = self._info_of.assumed_on(name)
        table.add_pod(placed, name)
        if self._world.ledger is not None:
            self._world.ledger.take(row, arrival.pod)
        self.placed += 1
        if arrival.lifetime_s is not None or arrival.leaves_s is not None:
            ends = [self.time_s + arrival.lifetime_s] if arrival.lifetime_s is not None else []
            ends += [arrival.leaves_s] if arrival.leaves_s is not None else []
            heapq.heappush(self._ends, (min(ends), self.placed, placed, name))
        self._describe(row)
        if self._tracks_fragments:
            self.fragmented = self._fragmentation()

    def _end_one(self) -> None:
        _, _, pod, name = heapq.heappop(self._ends)
        row = self.table.row_of[name]
        self.table.remove_pod(pod, name)
        if self._world.ledger is not None:
            self._world.ledger.give_back(pod.uid)
        self._used -= not self.table.pod_count.array[row]
        self._describe(row)
        self._has_room = bool(self._waiting)
        if self._tracks_fragments:
            self.fragmented = self._fragmentation()

    def _pass_until(self, time_s: float) -> None:
        self.node_hours += self._used * max(0.0, time_s - self.time_s) / 3600.0
        self.time_s = max(self.time_s, time_s)

    def _fragmentation(self) -> float:
        if self._gpus is not None:
            return self._gpus.rate()
        table, count = self.table, self.table.high_water
        index = table.resource_index["cpu"]
        free = table.allocatable[index].array[:count] - table.requested[index].array[:count]
        return plain(np.maximum(free, 0), table.pod_count.array[:count] > 0)


class WeightsEnv(PlacementEnv):
    """Weighs the score plugins for each pod; the highest total wins, the first node of a tie."""

    def _actions(self, nodes: int) -> spaces.Space[Any]:
        return spaces.Box(0.0, 1.0, (len(self._framework.score),), np.float32)

    @property
    def score_plugins(self) -> list[str]:
        """What the numbers of an action weigh."""
        return [plugin.name for plugin in self._framework.score]

    def _row_for(self, action: Any) -> int:  # noqa: ANN401  # an array
        count = len(self._framework.score)
        weights = _numbers(action, np.float64, (count,))
        if not np.all((weights >= 0) & (weights <= 1)):
            raise InputError(f"action {action}: {count} weights from 0 to 1 are needed")
        rounded = np.rint(weights * SCALE).astype(int).tolist()
        self._framework.score_weights = dict(zip(self.score_plugins, rounded, strict=True))
        rows = np.flatnonzero(self._mask)
        scored = self._algorithm.score(self._framework, self._state, self._current.pod, rows)
        if scored.error is not None:
            raise InputError(f"pod {self._info_of.key}: {scored.error.message}")
        return int(rows[int(scored.totals.argmax())])


def _numbers(action: object, kind: type[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    try:
        numbers = np.asarray(action).astype(kind, casting="same_kind")
    except (TypeError, ValueError):
        numbers = np.empty(())
    if numbers.shape != shape or numbers.dtype != kind:
        count = shape[0] if shape else 1
        raise InputError(f"action {action}: {count} numbers of type {kind.__name__} are needed")
    return numbers


class _Feasible(spaces.Discrete):
    """Nodes; a sample without a mask of its own is drawn from those that take the pod at hand."""

    def __init__(self, env: PlacementEnv, nodes: int) -> None:
        super().__init__(nodes)
        self._env = env

    def sample(self, mask: Any = None, probability: Any = None) -> np.int64:  # noqa: ANN401  # as gymnasium's
        if mask is None and probability is None:
            mask = self._env.action_masks().astype(np.int8)
        return super().sample(mask, probability)

    def __reduce__(self) -> tuple[Any, ...]:
        # Vectorised environments and saved policies pickle spaces; an environment cannot be.
        return spaces.Discrete, (int(self.n),)


# -- episodes on processes or machines -------------------------------------------------------------


def evaluate(
    policy: Policy,
    trace: TraceSource | None = None,
    *,
    seeds: int | Sequence[int] = 10,
    executor: str = "local:1",
    env: type[PlacementEnv] = PlacementEnv,
    **options: Any,  # noqa: ANN401  # as the environment takes them
) -> Table:
    """Play an episode per seed: `seed`, `steps`, `reward` (their sum), `waiting`, `nodes_used`.

    `policy` gives the action for an observation and a mask. `options` are the environment's
    (`reward`, `features` …). `executor` is where to play, as in `compare`; all of it is pickled
    for other processes, so functions belong to modules that these can import.

    Raises:
        InputError: an action, a seed or an option is invalid.
        KubeschedError: an episode failed; the message names its seed.
    """
    numbers = seeds_of(seeds)
    shared, where = (policy, trace, env, options), executor_of(executor)
    episodes: list[Any] = [None] * len(numbers)
    for done in where.run(_episode, shared, numbers):
        if done.result is None:
            raise KubeschedError(f"seed {numbers[done.index]}: {done.error}")
        episodes[done.index] = msgspec.json.decode(done.result)
    columns: dict[str, Any] = {"seed": np.array(numbers, dtype=np.int64)}
    for at, name in enumerate(("steps", "reward", "waiting", "nodes_used")):
        kind = np.float64 if name == "reward" else np.int64
        columns[name] = np.array([episode[at] for episode in episodes], dtype=kind)
    return Table(columns)


def _episode(
    shared: tuple[Policy, TraceSource | None, type[PlacementEnv], Any], seed: int
) -> bytes:
    """One episode; may run in another process."""
    silence()
    policy, trace, make, options = shared
    env = make(trace, **options)
    try:
        observation, info = env.reset(seed=seed)
        steps, total, is_over = 0, 0.0, False
        while not is_over:
            action = policy(observation, info["action_mask"])
            observation, reward, is_over, _, info = env.step(action)
            steps, total = steps + 1, total + reward
    finally:
        env.close()
    return msgspec.json.encode((steps, total, info["waiting"], info["nodes_used"]))


def _small_sample(seed: int) -> Trace:
    return sample_trace(nodes=50, pods=500, hours=6, seed=seed)


def pod_of(env: PlacementEnv) -> Pod:
    """The pod at hand, for rewards and policies that want to know more."""
    return env._current.pod
