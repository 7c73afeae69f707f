"""Serving one queue: receive messages, run them, report what became of them, keep their locks meanwhile."""

from __future__ import annotations

from dagkit.worker.serve import Outcome, Worker

__all__ = ["Outcome", "Worker"]
