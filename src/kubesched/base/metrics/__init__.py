"""Metrics: instruments, their registry, and every scheduler metric by its upstream name.

`instruments` holds the numbers, `registry` writes the page, `table` reads the description of every
metric (`metrics.txt`), `scheduler` lists the scheduler's metrics and `process` those of the
interpreter and the operating system. There is no global registry: the application creates one and
passes it down.
"""

from kubesched.base.metrics.instruments import Counter as Counter
from kubesched.base.metrics.instruments import Family as Family
from kubesched.base.metrics.instruments import Gauge as Gauge
from kubesched.base.metrics.instruments import Histogram as Histogram
from kubesched.base.metrics.instruments import exponential_buckets as exponential_buckets
from kubesched.base.metrics.registry import CONTENT_TYPE as CONTENT_TYPE
from kubesched.base.metrics.registry import MetricsRegistry as MetricsRegistry
from kubesched.base.metrics.scheduler import SchedulerMetrics as SchedulerMetrics
