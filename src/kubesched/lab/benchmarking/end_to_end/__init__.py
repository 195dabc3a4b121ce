"""Runs workloads against a control plane, with schedulers as separate processes.

run            rounds, alternating contestants, results
driving        a workload's operations on a control plane
measuring      one measured interval: rate, CPU time, latencies, events
contestants    this scheduler and kube-scheduler as programs
planes         etcd and kube-apiserver, or the embedded API server, as separate processes
creating       object creation, concurrent or at a rate
claims, volumes    controllers missing from these control planes: claims, provisioning
observing      when each pod was bound
decision_profile    the share of a scheduler's CPU that decisions take
metric_pages, usage, sampling    /metrics and /proc readers, rates from timestamps
"""
