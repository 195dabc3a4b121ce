"""Scalar twins of the plugins: one pod, one node, plain Python over plain JSON.

Written from the specification, sharing no code with the package: slow, obvious, and independent.
"""
