"""The revisioned store, watches on it, and the journal that keeps it on disk."""
