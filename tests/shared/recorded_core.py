"""Core mode with a flight recorder."""

from dataclasses import replace
from functools import partial

from kubesched.api.kinds import KINDS
from kubesched.api.names import key_of
from kubesched.insight.recording.recorded_dependencies import recorded_dependencies
from kubesched.lab.benchmarking.core_cluster import CoreCluster, PacedClock
from kubesched.lab.benchmarking.core_mode import CoreOptions, run_core

RESOURCES = {kind.record: kind.resource for kind in KINDS if kind.has_record}


class RecordedCluster(CoreCluster):
    """Tells a recorder of everything that happens to objects."""

    def __init__(self, record, config, gates, **options):
        clock = PacedClock()
        self.recording = record(config, gates, clock)
        super().__init__(config, gates, clock=clock, wrap=self._recorded, **options)
        self.recording.recorder.began()

    def _recorded(self, dependencies):
        return recorded_dependencies(dependencies, self.recording)

    def close(self):
        if not self._is_over:
            self.recording.recorder.ended()
            super().close()
            self.recording.close()
            assert not self.recording.recorder.stopped_reason

    def flush_queue(self):
        self.recording.recorder.flushed()
        super().flush_queue()

    def _store(self, old, new):
        op, key = "a" if old is None else "u", key_of(new.metadata)
        self.recording.recorder.changed(RESOURCES[type(new)], op, key, old, new)
        super()._store(old, new)

    def _drop(self, obj):
        self.recording.recorder.changed(RESOURCES[type(obj)], "d", key_of(obj.metadata), obj, obj)
        super()._drop(obj)


def run_recorded(workload, record):
    """One repetition; `record` opens a recording for a configuration, gates and a clock."""
    options = CoreOptions(repeats=1, warmup=0)
    return run_core(workload, replace(options, make_cluster=partial(RecordedCluster, record)))
