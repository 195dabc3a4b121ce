"""Kubernetes objects as frozen records, and the small languages spoken inside them.

One module per API group and version holds the records; `quantity`, `selectors`, `tolerations`,
`host_ports`, `affinity_terms` and `resources` give them meaning; `codec`, `watch` and `status`
carry them over the wire. Nothing here does I/O or knows what time it is.
"""
