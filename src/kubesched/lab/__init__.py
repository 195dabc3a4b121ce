"""Simulation, conformance with kube-scheduler, benchmarks, trace replays, sweeps, the library."""
