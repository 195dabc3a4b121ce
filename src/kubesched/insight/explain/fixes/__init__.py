"""Fixes: the smallest changes that make a pod fit, each verified with the real filters."""
