"""The scheduling queue: which pod is tried next, and what makes a rejected pod schedulable again.

`scheduling_queue` combines the other modules. Everything is synchronous and single-threaded: no
locks, no waiting, no I/O. The clock is a parameter.
"""

from kubesched.scheduler.queue.hints import HintMap as HintMap
from kubesched.scheduler.queue.hints import PluginEvents as PluginEvents
from kubesched.scheduler.queue.hints import build_hint_map as build_hint_map
from kubesched.scheduler.queue.nominator import Nominator as Nominator
from kubesched.scheduler.queue.scheduling_queue import SchedulingQueue as SchedulingQueue
from kubesched.scheduler.queue.settings import QueueSettings as QueueSettings
