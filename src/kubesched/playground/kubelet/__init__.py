"""Fake kubelets: nodes that register, send heartbeats, and simulate the pods bound to them."""
