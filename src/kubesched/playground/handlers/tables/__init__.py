"""`Table` responses: the columns kubectl prints, computed on the server as upstream does."""

from __future__ import annotations

from kubesched.playground.handlers.tables.columns import table_of

__all__ = ["table_of"]
