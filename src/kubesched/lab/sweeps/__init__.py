"""Sweeps: many independent cells of work on processes or a Dask cluster, with results kept under the hash of their inputs.

| Module | What |
|---|---|
| `sweep` | cells in, results in the same order out; what is stored already is not run again |
| `executors` | in this process, local processes, Dask |
| `store` | results on disk |
"""
