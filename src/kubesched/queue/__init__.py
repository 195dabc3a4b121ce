"""The scheduling queue: which pod is tried next, and what makes a rejected pod schedulable again.

`scheduling_queue` is the whole; each other module is one of its parts. Everything is synchronous and belongs to one
thread: no locks, no waiting, no I/O. The clock is a parameter.
"""

from kubesched.queue.hints import HintMap as HintMap
from kubesched.queue.hints import PluginEvents as PluginEvents
from kubesched.queue.hints import build_hint_map as build_hint_map
from kubesched.queue.nominator import Nominator as Nominator
from kubesched.queue.nominator import PodLister as PodLister
from kubesched.queue.scheduling_queue import SchedulingQueue as SchedulingQueue
from kubesched.queue.settings import QueueSettings as QueueSettings
