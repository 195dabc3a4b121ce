"""The cast of a cluster: controllers that turn desired state into pods, volumes and verdicts."""
