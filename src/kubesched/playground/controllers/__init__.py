"""kube-controller-manager's part: controllers that turn desired state into pods and volumes.

Every controller watches through informers, notes keys in its work queue, and brings one key at a
time to its desired state (`client.controller`). All of them live beside the API server in one
process and know it only through `LocalApi`; time and chance come in as parameters, so the same
controllers run under a real clock, a manual one in tests, and a virtual one in simulation.
"""
