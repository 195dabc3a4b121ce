"""A Dask cluster of two worker processes on this machine."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from kubesched.lab.sweeps.executors import Dask


@contextmanager
def dask_cluster() -> Iterator[Dask]:
    """Its executor; the workers inherit the environment."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address="127.0.0.1:0",
        host="127.0.0.1",
        silence_logs=logging.CRITICAL,  # tests kill workers
    ) as cluster:
        yield Dask(cluster.scheduler_address)
