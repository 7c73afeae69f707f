"""The YAML model: what a workflow and its tasks are, checked as a whole (facts: jobq, section 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, ValidationError

from dagkit.errors import DefinitionError, Problem
from dagkit.model import definition, document, portable, schema, writing
from dagkit.model.graph import Graph
from dagkit.model.problems import Finding, field_findings, problems_of, shown
from dagkit.model.wiring import result_findings, task_findings, wire

__all__ = ["DepPolicy", "ResultPolicy", "TaskSpec", "WorkflowSpec"]

_Count = Annotated[StrictInt, Field(ge=1)]
_Text = Annotated[StrictStr, Field(pattern=r"\S")]
_Delay = Annotated[StrictInt, Field(ge=0)] | Annotated[StrictFloat, Field(ge=0, allow_inf_nan=False)]
_Json = dict[StrictStr, Any]
DepPolicy = Literal["all", "any", "all_settled"] | _Count
ResultPolicy = Literal["all_tasks_succeed", "all_sinks_succeed"]

_CONFIG: Final = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class TaskSpec(BaseModel):
    """One task. Making one checks everything that can be known without the rest of the workflow."""

    model_config = _CONFIG

    name: _Text = Field(description="Unique in the workflow; may contain slashes, may not start with __.")
    depends_on: tuple[StrictStr, ...] = Field((), description="Tasks that have to end first, in any order.")
    dep_policy: DepPolicy = Field("all", description="How many dependencies have to succeed before this task runs.")
    condition: StrictStr | None = Field(
        None, description="Expression over the outputs of the dependencies; the task is skipped unless it is true."
    )
    queue: _Text | None = Field(None, description="Where the task runs; default_queue if absent.")
    timeout_s: _Count | None = Field(None, description="Seconds an attempt may take; default_task_timeout_s if absent.")
    num_retries: Annotated[StrictInt, Field(ge=0)] = Field(0, description="Attempts after the first: 3 is up to 4.")
    template: _Text | None = Field(None, description="The group of tasks made from one declaration.")
    resources: _Json | None = Field(None, description="cores, memory (40G), runtime (2h), gpus, nodes, extra; or refs.")
    resource_scales: _Json | None = Field(
        None, description="Growth of a resource when an attempt ran out of it: a factor, or a list of values."
    )
    fallback_queues: tuple[_Text, ...] = Field((), description="Queues to try when scaled resources outgrow `queue`.")
    retry_delay_s: _Delay | tuple[_Delay, ...] | None = Field(
        None, description="Seconds before another attempt: one number, or one per retry (the last repeats)."
    )
    expected_outputs: tuple[_Text, ...] = Field((), description="Files that have to exist after a success.")
    priority: StrictInt = Field(0, description="Among ready tasks, higher goes first.")
    kwargs: _Json = Field({}, description="What the worker gets: cmd, env and cwd of a shell task.")

    if not TYPE_CHECKING:  # so that editors and mypy see the fields as keywords

        def __init__(self, /, **fields):
            if findings := _fill_task(self, fields):
                raise DefinitionError(
                    [Problem(finding.message, str(finding.path[0])) for finding in findings],
                    f"task {shown(fields.get('name'))}",
                )

    @classmethod
    def trusted(cls, name: str, **fields: Any) -> TaskSpec:
        """A task of checked values (JSON trees, tuples), without another look; also takes the reserved names."""
        task = cls.__new__(cls)
        _set(task, {**_TASK_DEFAULTS, "kwargs": {}, "name": name, **fields}, _given("name", *fields))
        return task

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the name and what differs from its default, in field order."""
        return _changed(self, _TASK_DEFAULTS)


class WorkflowSpec(BaseModel):
    """A workflow: tasks and how they depend on each other. Making one checks all of it and reports all problems."""

    model_config = _CONFIG

    name: _Text = Field(description="What people call the workflow.")
    default_queue: _Text = Field("default", description="Queue of tasks that name none.")
    default_task_timeout_s: _Count | None = Field(None, description="Timeout of tasks that name none, in seconds.")
    max_parallelism: _Count | None = Field(None, description="How many tasks may run at a time; no limit if absent.")
    result_policy: ResultPolicy = Field("all_tasks_succeed", description="What has to succeed for the run to.")
    fail_fast: StrictBool = Field(False, description="Start nothing more once a task has failed for good.")
    concurrency: dict[StrictStr, _Count] = Field({}, description="How many tasks of a template may run at a time.")
    tasks: Annotated[tuple[TaskSpec, ...], Field(min_length=1)] = Field(description="The tasks, in any order.")
    result: Any = Field(None, description="What the run returns: JSON in which {$ref: task, path: [...]} is an output.")

    if not TYPE_CHECKING:

        def __init__(self, /, **fields):
            _fill_workflow(self, document.Document(fields), None)

    # --- reading

    @classmethod
    def from_dict(cls, data: Any, source: str | None = None) -> WorkflowSpec:
        """From parsed data. `DefinitionError` lists every problem; `source` is the file's name in it."""
        return cls._from_document(document.Document(data), source)

    @classmethod
    def from_yaml(cls, text: str | bytes, source: str | None = None) -> WorkflowSpec:
        """From the safe subset of YAML. Problems carry lines."""
        return cls._from_document(document.read_yaml(text, source), source)

    @classmethod
    def from_json(cls, text: str | bytes, source: str | None = None) -> WorkflowSpec:
        """From JSON."""
        return cls._from_document(document.read_json(text, source), source)

    @classmethod
    def from_file(cls, path: str | Path) -> WorkflowSpec:
        """From a `.yaml`, `.yml` or `.json` file; one that cannot be read is a `DefinitionError` too."""
        return cls._from_document(document.read_file(Path(path)), str(path))

    @classmethod
    def _from_document(cls, read: document.Document, source: str | None) -> WorkflowSpec:
        if not isinstance(read.data, Mapping):
            raise DefinitionError(
                [Problem(f"found {shown(read.data)}; allowed: a mapping with name and tasks")], source
            )
        spec = cls.__new__(cls)
        _fill_workflow(spec, read, source)
        spec.__dict__["_hints"] = problems_of(read.hints, [task.name for task in spec.tasks], read.line_of)
        spec.__dict__["_not_portable"] = problems_of(portable.schema_findings(read.data), (), read.line_of)
        return spec

    @classmethod
    def trusted(cls, name: str, tasks: Iterable[TaskSpec], **fields: Any) -> WorkflowSpec:
        """A workflow of checked parts, without another look."""
        spec = cls.__new__(cls)
        values = {**_WORKFLOW_DEFAULTS, "concurrency": {}, "name": name, **fields, "tasks": tuple(tasks)}
        _set(spec, values, _given("name", "tasks", *fields))
        return spec

    @classmethod
    def from_definition(cls, stored: Mapping[str, Any]) -> WorkflowSpec:
        """From a stored definition document (facts: jobq 7.2), which was checked when it was written."""
        fields, tasks = definition.parse(stored)
        return cls.trusted(tasks=[TaskSpec.trusted(**task) for task in tasks], **fields)

    # --- writing

    def to_dict(self) -> dict[str, Any]:
        """Plain data: what differs from its default, in field order."""
        return {**_changed(self, _WORKFLOW_DEFAULTS), "tasks": [task.to_dict() for task in self.tasks]}

    def to_yaml(self, path: str | Path | None = None, *, portable: bool = False) -> str:
        """YAML text that reads back to an equal model in YAML 1.1 and 1.2; written to `path` too if given.

        `portable` says `result_policy` outright, because other readers have another default.
        """
        data = self.to_dict()
        if portable:
            data.setdefault("result_policy", self.result_policy)
        text = writing.write_yaml(data)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8", newline="\n")
        return text

    def to_json(self) -> str:
        """JSON text that reads back to an equal model."""
        return writing.write_json(self.to_dict())

    def definition(self, workflow_id: str, created_at_iso: str) -> dict[str, Any]:
        """The document that is stored for a run (facts: jobq 7.2)."""
        return definition.build(self, workflow_id, created_at_iso)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """JSON Schema of a definition file, for editors."""
        return schema.of(cls)

    def portable_problems(self) -> list[Problem]:
        """What ai4s-jobq would not read, or read otherwise (facts: jobq 1.3)."""
        return [*self.__dict__.get("_not_portable", ()), *portable.problems(self)]

    @property
    def hints(self) -> list[Problem]:
        """What is legal and may surprise: numbers in base 60, limits of templates that no task has."""
        return [*self.__dict__.get("_hints", ()), *portable.concurrency_hints(self)]

    # --- resolved values

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of every task by name."""
        return {task.name: position for position, task in enumerate(self.tasks)}

    @cached_property
    def graph(self) -> Graph:
        """The dependencies as integer indexes."""
        return Graph.of(self.tasks, self.index)

    def queue_of(self, task: TaskSpec) -> str:
        return task.queue or self.default_queue

    def timeout_of(self, task: TaskSpec) -> int | None:
        return self.default_task_timeout_s if task.timeout_s is None else task.timeout_s

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> WorkflowSpec:
        """As pydantic's; `update` is not checked. What was derived from the tasks is derived anew."""
        copy = super().model_copy(update=update, deep=deep)
        for derived in ("index", "graph", "_hints", "_not_portable"):
            copy.__dict__.pop(derived, None)
        return copy


def _defaults(model: type[BaseModel]) -> dict[str, Any]:
    return {name: field.default for name, field in model.model_fields.items() if not field.is_required()}


_TASK_DEFAULTS: Final = _defaults(TaskSpec)
_WORKFLOW_DEFAULTS: Final = _defaults(WorkflowSpec)
_TASK_FIELDS: Final = tuple(TaskSpec.model_fields)
_WORKFLOW_FIELDS: Final = tuple(WorkflowSpec.model_fields)


def _set(model: BaseModel, values: dict[str, Any], given: set[str]) -> None:
    """What pydantic's own constructor does at its end; several times as fast as `model_construct`."""
    object.__setattr__(model, "__dict__", values)
    object.__setattr__(model, "__pydantic_fields_set__", given)
    object.__setattr__(model, "__pydantic_extra__", None)
    object.__setattr__(model, "__pydantic_private__", None)


@cache
def _given(*fields: str) -> set[str]:
    """Which fields were given: one set for all models that were given the same. Nothing changes those of a frozen
    model, and they would be more than half of a task's memory."""
    return set(fields)


def _changed(model: BaseModel, defaults: Mapping[str, Any]) -> dict[str, Any]:
    values = model.__dict__
    return {
        field: list(value) if isinstance(value, tuple) else value
        for field in type(model).model_fields
        if field != "tasks" and ((value := values[field]) != defaults.get(field) or field == "name")
    }


def _fill_task(task: TaskSpec, fields: dict[Any, Any]) -> list[Finding]:
    """Set the task's fields; those that are wrong are found and left at their defaults."""
    findings = []
    try:
        task.__pydantic_validator__.validate_python(fields, self_instance=task)
    except ValidationError as error:
        findings = field_findings(error, fields, _TASK_FIELDS)
        wrong = {finding.path[0] for finding in findings}
        good = {key: value for key, value in fields.items() if key in _TASK_FIELDS and key not in wrong}
        lists = {key: tuple(value) for key, value in good.items() if isinstance(_TASK_DEFAULTS.get(key), tuple)}
        _set(task, {**_TASK_DEFAULTS, "kwargs": {}, "name": "", **good, **lists}, _given(*good))
        return findings + task_findings(task, wrong)
    return task_findings(task)


def _fill_workflow(spec: WorkflowSpec, read: document.Document, source: str | None) -> None:
    """Set the workflow's fields, or raise `DefinitionError` with every problem of it and its tasks."""
    findings = list(read.findings)
    fields = _without_synonyms(read.data, findings)
    tasks = _tasks(fields.get("tasks"), findings)
    if tasks:
        fields = {**fields, "tasks": tuple(tasks)}
    try:
        spec.__pydantic_validator__.validate_python(fields, self_instance=spec)
    except ValidationError as error:
        findings += field_findings(error, fields, _WORKFLOW_FIELDS)
    index, graph = wire(tasks, findings)
    findings += result_findings(fields.get("result"), index)
    if findings:
        raise DefinitionError(problems_of(findings, [task.name or None for task in tasks], read.line_of), source)
    spec.__dict__.update(index=index, graph=graph)


def _without_synonyms(fields: Mapping[Any, Any], findings: list[Finding]) -> dict[Any, Any]:
    """Drop what is accepted and means nothing: an editor's `$schema`, a null `result_policy`."""
    hint = fields.get("$schema", "")
    if not isinstance(hint, str):
        findings.append(Finding(("$schema",), f"$schema: found {shown(hint)}; allowed: text"))
    return {
        key: value
        for key, value in fields.items()
        if key != "$schema" and not (key == "result_policy" and value is None)
    }


def _tasks(given: Any, findings: list[Finding]) -> list[TaskSpec]:
    """Tasks of a list of mappings or tasks, faulty ones with what is good of them."""
    if not isinstance(given, (list, tuple)):
        return []
    tasks = []
    for position, item in enumerate(given):
        if isinstance(item, TaskSpec):
            tasks.append(item)
            continue
        task = TaskSpec.__new__(TaskSpec)
        if isinstance(item, Mapping):
            found = _fill_task(task, dict(item))
        else:
            _set(task, {**_TASK_DEFAULTS, "name": ""}, _given())
            found = [Finding((), f"found {shown(item)}; allowed: a mapping with at least a name")]
        findings += [finding.under("tasks", position) for finding in found]
        tasks.append(task)
    return tasks
