"""Property tests have no deadline per example: the machines that run them are shared."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("model", deadline=None)
settings.load_profile("model")
