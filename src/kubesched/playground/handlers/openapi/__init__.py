"""OpenAPI documents, built from the type table on first request; kubectl explains and validates with them."""

from __future__ import annotations

from kubesched.playground.handlers.openapi.documents import OpenApi

__all__ = ["OpenApi"]
