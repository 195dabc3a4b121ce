"""Traces and recordings, played to the scheduler in virtual time, and what is compared of the outcome.

| Module | What |
|---|---|
| `trace` | what a reader makes of its files: nodes at the beginning, then arrivals and changes by time |
| `reading` | which reader a file needs |
| `openb`, `borg`, `azure`, `audit`, `recorded` | the readers; each begins with its mapping |
| `gpu_share` | devices of which pods take a part: the ledger and the Filter plugin over it |
| `player` | one trace under one configuration and seed |
| `claims` | device claims of pods that are gone |
| `measuring`, `fragmentation` | figures over time |
| `outcome`, `report`, `page` | one cell's figures; configurations compared over seeds; the HTML page |
"""
