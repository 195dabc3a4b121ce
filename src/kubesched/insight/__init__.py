"""Answers about a cluster: why pods are where they are, and what a change would do."""
