"""Hypothesis profiles, chosen by HYPOTHESIS_PROFILE. No example has a deadline: machines that run tests are shared."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, print_blob=True)
settings.register_profile("thorough", deadline=None, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

#: Fixtures of the real services.
pytest_plugins = ["services.azurite", "services.servicebus", "services.slurm"]
