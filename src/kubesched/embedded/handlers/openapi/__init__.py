"""OpenAPI documents, made from the type table when somebody asks: kubectl explains and validates with them."""

from __future__ import annotations

from kubesched.embedded.handlers.openapi.documents import OpenApi

__all__ = ["OpenApi"]
