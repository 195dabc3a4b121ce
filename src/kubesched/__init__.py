"""kubesched: a Kubernetes scheduler in Python."""

__version__ = "0.2.0"
