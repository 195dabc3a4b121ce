"""Traces and recordings, played to the scheduler in virtual time, and what is compared of the outcome.

| Module | What |
|---|---|
| `trace` | what a reader makes of its files: nodes at the beginning, then arrivals and changes by time |
| `reading` | which reader a file needs |
| `openb`, `borg`, `azure`, `audit`, `recorded` | the readers; each begins with its mapping |
| `gpu_share` | devices of which pods take a part: the ledger and the Filter plugin over it |
| `play` | one trace under one configuration and seed: the way in |
| `player` | how it comes out, modelled: the cluster of a plan, events by time |
| `log_player`, `played_calls` | a recording record by record, with the answers that calls had then |
| `claims` | device claims of pods that are gone |
| `measuring`, `fragmentation` | figures over time |
| `outcome`, `report`, `page` | one cell's figures; configurations compared over seeds; the HTML page |
"""
