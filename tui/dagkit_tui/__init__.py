"""The terminal application: every run of a store, sorted by trouble."""

from __future__ import annotations

__all__: list[str] = []
