"""kubesched: a Kubernetes scheduler in Python."""

__version__ = "0.2.0"
KUBERNETES_VERSION = "1.36.4"
"""The kube-scheduler release whose behaviour is reproduced."""
