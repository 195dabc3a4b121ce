"""Runs workloads against a control plane, with schedulers as separate processes.

run            rounds, alternating contestants, results
driving        a workload's operations on a control plane
measuring      one measured interval: rate, CPU time, latencies, events
planes         etcd and kube-apiserver, or the embedded API server, as separate processes
creating       object creation, concurrent or at a rate
volumes        the provisioner that these control planes lack
observing      when each pod was bound
decision_profile    the share of a scheduler's CPU that decisions take
metric_pages, usage    /metrics and /proc readers
"""
