"""Replays traces and recordings to the scheduler in virtual time, and compares the outcomes.

| Module | Contents |
|---|---|
| `trace` | the result of a reader: initial nodes, then arrivals and changes by time |
| `reading` | selects the reader for a file |
| `openb`, `borg`, `audit`, `recorded` | the readers; each documents its mapping |
| `gpu_share` | shared GPUs: the ledger and its Filter plugin |
| `play` | entry point: plays one trace under one configuration and seed |
| `player` | models a trace: a planned cluster with timed events |
| `log_player`, `played_calls` | plays a recording record by record, with its call results |
| `claims` | device claims of deleted pods |
| `measuring`, `fragmentation` | figures over time |
| `outcome`, `report`, `page` | figures of a cell; configurations compared over seeds; HTML page |
"""
