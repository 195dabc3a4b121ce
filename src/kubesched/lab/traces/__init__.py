"""Replays traces and recordings to the scheduler in virtual time, and compares the outcomes.

| Module | Contents |
|---|---|
| `trace` | the result of a reader: initial nodes, then arrivals and changes by time |
| `reading` | selects the reader for a file |
| `openb`, `borg`, `recorded` | the readers; each documents its mapping |
| `gpu_share` | shared GPUs: the ledger and its Filter plugin |
| `player` | plays one trace under one configuration and seed: a planned cluster with timed events |
| `log_player`, `played_calls` | plays a recording record by record, with its call results |
| `measuring`, `fragmentation` | figures over time |
| `outcome`, `report` | figures of a cell; configurations compared over seeds |
| `cells` | replays as cells of a sweep |
"""
