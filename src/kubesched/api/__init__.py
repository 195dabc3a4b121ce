"""Kubernetes objects as frozen records, and the small languages used inside them.

One module per API group and version holds the records; `quantity`, `selectors`, `tolerations`,
`host_ports`, `affinity_terms` and `resources` interpret them; `codec`, `watch` and `status` encode
and decode them. Nothing here does I/O or reads the clock.
"""
