"""Defaults for omitted fields, by kind; all functions modify the object in place."""
