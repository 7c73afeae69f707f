"""The JSON Schema of a definition file, generated from the model; `schema.json` beside this file is a copy of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagkit.model.spec import WorkflowSpec

__all__ = ["SCHEMA_FILE", "of"]

SCHEMA_FILE = Path(__file__).with_name("schema.json")


def of(model: type[WorkflowSpec]) -> dict[str, Any]:
    """Draft 2020-12, with what the model accepts beyond its fields: `$schema`, and null for the default policy."""
    generated = model.model_json_schema()
    properties = {"$schema": {"type": "string", "description": "For editors; ignored."}, **generated.pop("properties")}
    policy = properties["result_policy"]
    properties["result_policy"] = {**policy, "type": ["string", "null"], "enum": [*policy["enum"], None]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **{key: value for key, value in generated.items() if key != "$defs"},
        "properties": properties,
        "$defs": generated["$defs"],
    }


def text_of(model: type[WorkflowSpec]) -> str:
    """The content of `schema.json`."""
    return json.dumps(of(model), indent=2) + "\n"


if __name__ == "__main__":
    from dagkit.model.spec import WorkflowSpec as Model

    SCHEMA_FILE.write_text(text_of(Model), encoding="utf-8")
