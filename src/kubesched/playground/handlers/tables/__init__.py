"""`Table` answers: the columns kubectl prints, computed on the server as in a real cluster."""

from __future__ import annotations

from kubesched.playground.handlers.tables.columns import table_of

__all__ = ["table_of"]
