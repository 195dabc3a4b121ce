"""Validation beyond the typed schema, by kind, with upstream's messages.

Returns all problems with field paths, after type checks (`schema.decoding`) and defaulting.
"""
