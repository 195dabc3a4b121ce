"""Fake kubelets: nodes that register, heartbeat, and play the life of the pods bound to them."""
