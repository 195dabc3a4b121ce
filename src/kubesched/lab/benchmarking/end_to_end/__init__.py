"""Workloads against a control plane: schedulers as processes, driven, observed and measured from outside.

run            rounds, contestants in turn, results
driving        a workload's operations on a control plane
measuring      one measured stretch: rate, processor time, latencies, events
contestants    this scheduler and kube-scheduler as programs
planes         etcd and kube-apiserver, or the embedded API server, in processes of their own
creating       objects, many at a time or at a rate
claims, volumes    controllers that a control plane here has not: claims of devices, volumes for claims
observing      when which pod was bound
decision_profile    what of a scheduler's CPU its decisions take
metric_pages, usage, sampling    reading /metrics and /proc, and what follows from moments
"""
