"""Rules a typed schema cannot say, kind by kind: what is refused and in which words.

Every function returns problems with their field paths instead of stopping at the first. Values have
their right types already (`schema.decoding`), and defaults are filled in.
"""
