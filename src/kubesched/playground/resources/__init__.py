"""Behaviour of each kind: defaults, admission, validation, and custom resources."""
