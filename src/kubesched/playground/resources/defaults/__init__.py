"""What the server fills in when a client leaves it out, kind by kind.

All functions work in place.
"""
