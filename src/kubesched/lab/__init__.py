"""Simulation, conformance with kube-scheduler, benchmarks, trace replays and sweeps."""
