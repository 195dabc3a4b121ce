"""Sweeps: independent cells run on processes or Dask, with results stored by input hash.

| Module | Contents |
|---|---|
| `sweep` | runs cells and returns results in order; stored results are reused |
| `executors` | this process, local processes, Dask |
| `store` | results on disk |
"""
