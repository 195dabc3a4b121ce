"""The scheduler cache: known pods and nodes, including assumed pods."""

from kubesched.scheduler.cache.cache import Cache, CacheCorrupted

__all__ = ["Cache", "CacheCorrupted"]
