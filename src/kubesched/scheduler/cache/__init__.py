"""The scheduler cache: pods and nodes as the scheduler believes them to be."""

from kubesched.scheduler.cache.cache import Cache, CacheCorrupted

__all__ = ["Cache", "CacheCorrupted"]
