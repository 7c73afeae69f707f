"""Cases of `tests/cases/*.yaml` as parameters, by id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

CASES = Path(__file__).parent.parent / "cases"


def load_cases(name: str, *keys: str) -> list[Any]:
    """The cases of a file that have all of these keys; there are some, or the file has changed under us."""
    cases = yaml.safe_load((CASES / f"{name}.yaml").read_text(encoding="utf-8"))["cases"]
    chosen = [pytest.param(case, id=case["id"]) for case in cases if all(key in case for key in keys)]
    assert chosen, f"{name}.yaml has no case with {keys}"
    return chosen
