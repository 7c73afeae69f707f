"""What `dagkit tui` shows, one screen a module."""

from __future__ import annotations

__all__: list[str] = []
