"""The terminal application: every run of a store, sorted by trouble."""

from __future__ import annotations

from dagkit_tui.app import DagkitApp

__all__ = ["DagkitApp"]
