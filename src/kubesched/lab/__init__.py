"""Proof and experiments: simulation, conformance with kube-scheduler, benchmarks, replays, sweeps."""
