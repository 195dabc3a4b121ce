"""OpenAPI documents for kubectl, built from the type table on first request."""

from __future__ import annotations

from kubesched.playground.handlers.openapi.documents import OpenApi

__all__ = ["OpenApi"]
