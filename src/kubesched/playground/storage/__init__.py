"""The revisioned store, its watches, and the journal that persists it."""
