"""Fixes: the smallest changes that make a pod fit, each tried with the real filters."""
