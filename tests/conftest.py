"""Hypothesis profiles, chosen by HYPOTHESIS_PROFILE. No example has a deadline: machines that run tests are shared."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, print_blob=True)
settings.register_profile("thorough", deadline=None, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

#: Fixtures of the real services.
pytest_plugins = ["services.azurite", "services.servicebus", "services.slurm"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--save-shown` is how what readers see is made anew: outputs of `notebooks/`, pictures of `docs/images/`."""
    parser.addoption("--save-shown", action="store_true", help="save executed notebooks and screenshots for the docs")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test is not collected for the implementations that it says it is `not_for`: there is nothing to skip."""
    left_out = [item for item in items if not set(_not_for(item)).isdisjoint(_parameters(item))]
    if left_out:
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=left_out)


def _not_for(item: pytest.Item) -> Iterator[str]:
    for marker in item.iter_markers("not_for"):
        yield from marker.args


def _parameters(item: pytest.Item) -> list[str]:
    callspec = getattr(item, "callspec", None)
    return [value for value in callspec.params.values() if isinstance(value, str)] if callspec is not None else []
