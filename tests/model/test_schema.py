"""The JSON Schema for editors: up to date, valid, and of one mind with the model."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dagkit.model import schema
from dagkit.model.spec import WorkflowSpec
from model.cases import load_cases
from model.test_definition import FULL

VALIDATOR = Draft202012Validator(WorkflowSpec.json_schema())

#: What only the whole definition can tell is beyond a schema: names, edges, policies against their dependencies.
BEYOND_A_SCHEMA = {"def-18", "def-21", "def-25", "def-26", "def-27", "def-28"}


def test_the_packaged_file_is_up_to_date() -> None:
    expected = schema.text_of(WorkflowSpec)

    assert schema.SCHEMA_FILE.read_text(encoding="utf-8") == expected, "run: python -m dagkit.model.schema"


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(WorkflowSpec.json_schema())


@pytest.mark.parametrize("case", load_cases("definitions", "valid"))
def test_the_schema_and_the_model_agree(case: dict[str, Any]) -> None:
    data = json.loads(case["json"]) if "json" in case else case["definition"]

    assert VALIDATOR.is_valid(data) is (case["valid"] or case["id"] in BEYOND_A_SCHEMA)


def test_what_the_model_writes_fits_the_schema() -> None:
    VALIDATOR.validate(WorkflowSpec.from_dict(FULL).to_dict())
    VALIDATOR.validate({"name": "w", "tasks": [{"name": "a"}], "$schema": "x", "result_policy": None})


def test_every_field_is_described() -> None:
    generated = WorkflowSpec.json_schema()

    fields = {**generated["properties"], **generated["$defs"]["TaskSpec"]["properties"]}
    assert [name for name, field in fields.items() if not field.get("description")] == []
