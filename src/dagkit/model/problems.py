"""What is wrong with a definition, in words: every fault says the field, what was found and what is allowed."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dagkit.errors import Problem
from dagkit.model.names import closest
from dagkit.model.resources import parse_runtime

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = ["Finding", "LineOf", "field_findings", "json_fault", "no_lines", "problems_of", "shown", "suggestion"]

#: A place in a document: ("tasks", 3, "depends_on", 0).
Path = tuple[str | int, ...]
LineOf = Callable[[Path], int | None]

MAX_DEPTH: Final = 100
_SHOWN_PARTS: Final = 16

_SECONDS: Final = "a whole number of seconds from 1, or null"
_COUNT: Final = "a whole number from 1"
_ALLOWED: Final = {
    "name": "text that is not blank",
    "tasks": "a list of at least one task",
    "default_queue": "the name of a queue",
    "default_task_timeout_s": _SECONDS,
    "max_parallelism": f"{_COUNT}, or null for no limit",
    "result_policy": "all_tasks_succeed, all_sinks_succeed",
    "$schema": "text",
    "fail_fast": "true, false",
    "concurrency": f"a mapping from a template to {_COUNT}",
    "result": "JSON",
    "kwargs": "a mapping with text keys and JSON values",
    "depends_on": "a list of task names",
    "queue": "the name of a queue, or null for the default",
    "dep_policy": "all, any, all_settled, or a whole number from 1",
    "timeout_s": _SECONDS,
    "num_retries": "a whole number from 0",
    "condition": "text, an expression such as inputs.NAME.field > 0",
    "resources": "a mapping such as {cores: 4, memory: 40G, runtime: 2h}",
    "resource_scales": "a mapping from a resource to a factor or a list of values",
    "fallback_queues": "a list of queue names",
    "template": "text that is not blank, or null",
    "retry_delay_s": "a number of seconds from 0, or a list of them",
    "expected_outputs": "a list of texts",
    "priority": "a whole number",
}


@dataclass(frozen=True)
class Finding:
    """A fault at a place of the document: `("tasks", 3, "depends_on", 0)`."""

    path: Path
    message: str

    def under(self, *parents: str | int) -> Finding:
        return Finding((*parents, *self.path), self.message)


def no_lines(path: Path) -> None:
    """For documents that have none."""


def problems_of(
    findings: Iterable[Finding], task_names: Sequence[str | None] = (), line_of: LineOf = no_lines
) -> list[Problem]:
    """Findings as problems, with lines and task names, in the order of the document."""
    problems = [_problem(finding, task_names, line_of) for finding in findings]
    return sorted(problems, key=lambda problem: (problem.line or 0, -1 if problem.index is None else problem.index))


def _problem(finding: Finding, task_names: Sequence[str | None], line_of: LineOf) -> Problem:
    path, line = finding.path, line_of(finding.path)
    if len(path) > 1 and path[0] == "tasks" and isinstance(path[1], int):
        name = task_names[path[1]] if path[1] < len(task_names) else None
        return Problem(finding.message, str(path[2]) if len(path) > 2 else "", name, path[1], line)
    return Problem(finding.message, str(path[0]) if path else "", line=line)


def field_findings(error: ValidationError, data: Mapping[Any, Any], fields: Iterable[str]) -> list[Finding]:
    """What pydantic found, one finding per place, in our words."""
    findings: dict[Path, Finding] = {}
    for detail in error.errors(include_url=False, include_context=False):
        finding = _field_finding(detail["type"], detail["loc"], data, list(fields))
        findings.setdefault(finding.path, finding)
    return list(findings.values())


def _field_finding(kind: str, loc: Path, data: Mapping[Any, Any], fields: list[str]) -> Finding:
    field = loc[0]
    if kind == "missing":
        return Finding((field,), f"{field}: is missing; allowed: {_ALLOWED[str(field)]}")
    if kind in ("extra_forbidden", "invalid_key"):
        hint = suggestion(str(field), fields) or f" Allowed: {', '.join(fields)}."
        return Finding((field,), f"{shown(field) if kind == 'invalid_key' else field}: unknown field.{hint}")
    if loc[-1] == "[key]":
        return Finding((field, loc[1]), f"{field}: {key_fault(loc[1])}")
    value, path = _offender(data[field], loc)
    return Finding(
        path, f"{_place(path)}: found {shown(value)}; allowed: {_ALLOWED[str(field)]}{_hint(str(field), value)}"
    )


def _offender(value: Any, loc: Path) -> tuple[Any, Path]:
    """The value that is wrong and its place: the field's, or an item of it where pydantic points at one."""
    is_item = len(loc) > 1 and isinstance(value, (list, tuple)) and isinstance(loc[1], int)
    is_value = len(loc) > 1 and isinstance(value, Mapping) and loc[1] in value
    return (value[loc[1]], loc[:2]) if is_item or is_value else (value, loc[:1])


def _place(path: Path) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    if len(parts) > _SHOWN_PARTS:
        parts[_SHOWN_PARTS // 2 : -_SHOWN_PARTS // 2] = ["..."]
    return "".join(parts).removeprefix(".")


def _hint(field: str, value: object) -> str:
    if field.endswith("timeout_s") and isinstance(value, str):
        try:
            return f". Write {math.ceil(parse_runtime(value))} for {value}"
        except ValueError:
            return ""
    if isinstance(value, str) and field in ("depends_on", "fallback_queues", "expected_outputs"):
        return f". Write [{value}]" if value.isprintable() and len(value) < 60 else ""
    if field in ("name", "depends_on", "queue") and isinstance(value, (int, float)):
        return ". Quotes make it text"
    return ""


def shown(value: object) -> str:
    """A value as it would stand in the file, shortened."""
    if isinstance(value, str):
        text = json.dumps(value[:80], ensure_ascii=False)
        return text if len(value) <= 80 else f'{text[:-1]}…"'
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return repr(value) if isinstance(value, float) or abs(value) < 10**30 else "a very large number"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    if isinstance(value, datetime.date):
        return f"the date {value}"
    return _named(type(value).__name__)


def _named(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def suggestion(word: str, candidates: Iterable[str]) -> str:
    """` Did you mean "train-gnn"?`, or nothing."""
    near = closest(word, list(candidates))
    return f" Did you mean {shown(near[0])}?" if near else ""


def key_fault(key: object) -> str:
    """Why something cannot be a key of a JSON object."""
    return f"the key {shown(key)} is not text. Quotes make it text"


def json_fault(value: object, path: Path) -> Finding | None:
    """The first place in a tree that JSON could not carry unchanged, or None. Bounded in depth, so cycles end too."""
    if type(value) is dict and _is_flat_ascii(value):
        return None
    stack: list[tuple[Any, Path]] = [(value, path)]
    while stack:
        item, where = stack.pop()
        kind = type(item)
        if kind is str:
            fault = None if item.isascii() or _is_unicode(item) else "text that is not valid Unicode"
        elif item is None or kind is int or kind is bool:
            continue
        elif kind is float:
            fault = None if math.isfinite(item) else f"{item} is not a JSON number"
        elif len(where) - len(path) > MAX_DEPTH:
            fault = f"is nested more than {MAX_DEPTH} deep"
        elif kind is dict:
            fault = _push_items(item, where, stack)
        elif kind is list:
            stack.extend([(element, (*where, i)) for i, element in enumerate(item)])
            continue
        else:
            fault = _not_json(item)
        if fault:
            return Finding(where, f"{_place(where)}: {fault}")
    return None


def _is_flat_ascii(value: dict[Any, Any]) -> bool:
    """Whether it is what most kwargs are: texts by text, with nothing to look into."""
    for key, item in value.items():
        if type(key) is not str or type(item) is not str or not (key.isascii() and item.isascii()):
            return False
    return True


def _push_items(item: dict[Any, Any], where: Path, stack: list[tuple[Any, Path]]) -> str | None:
    for key, element in item.items():
        if type(key) is not str:
            return key_fault(key)
        if not key.isascii() and not _is_unicode(key):
            return "has a key that is not valid Unicode"
        stack.append((element, (*where, key)))
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _not_json(item: object) -> str:
    if isinstance(item, datetime.date):
        return f"{item} is a date to YAML, and JSON has none. Quotes make it text"
    if isinstance(item, tuple):
        return "a tuple is not JSON. Use a list"
    if isinstance(item, bytes):
        return "bytes are not JSON"
    return f"{_named(type(item).__name__)} is not JSON"
