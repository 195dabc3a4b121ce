"""Wires all components into one process."""
