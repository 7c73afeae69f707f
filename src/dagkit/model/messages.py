"""Task messages and completions: what travels between the coordinator, the executors and the workers.

The text forms are those of ai4s-jobq (facts: jobq, section 8).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeVar

from dagkit.errors import PayloadTooLarge
from dagkit.model.envelope import (
    BLOB,
    COMPACT,
    COMPACT_BLOB,
    KWARGS_BLOB,
    Get,
    PoisonMessage,
    compact_refs,
    envelope,
    fetch,
    open_envelope,
    read_object,
    take_upstream,
)
from dagkit.model.states import FailureKind

__all__ = ["AttemptKey", "Completion", "PoisonMessage", "Started", "TaskMessage"]

#: Keys of a task message's kwargs that are the coordinator's (facts: jobq 8.2).
_OWN_KEYS: Final = frozenset(
    (
        "__workflow_id",
        "__workflow_task",
        "__attempt_no",
        "__generation",
        "__memory",
        "__runtime",
        COMPACT,
        COMPACT_BLOB,
        KWARGS_BLOB,
    )
)
#: Bytes that references to kept parts may take beside the ids in them.
_REFERENCES: Final = 300
#: Bytes that one character may take after three encodings as JSON (half of a pair beyond the BMP: `\\\\ud83d`).
_LARGEST_GROWTH: Final = 20
_BODY: Final = "__completion_body"

T = TypeVar("T")


class AttemptKey(NamedTuple):
    """Identifies one attempt of one task, for ever."""

    workflow_id: str
    task: str
    generation: int
    attempt: int


@dataclass(slots=True)
class TaskMessage:
    """One attempt of one task, ready to be run.

    Attributes:
        kwargs: The task's own kwargs (`cmd`, `env`, `cwd` or `call`), without any `__` key.
        upstream: Output ref of every direct parent in order; None for a parent without an output.
        template: The group of tasks that it belongs to; empty for a task of its own.
        timeout_s: Limit for the execution; enforced by the coordinator, carried for executors that can pass it on.
        resources: What it asks for. The text carries memory and runtime, which a worker can hold it to.
    """

    workflow_id: str
    task: str
    attempt: int
    generation: int
    queue: str
    kwargs: dict[str, Any]
    upstream: dict[str, str | None] = field(default_factory=dict)
    timeout_s: int | None = None
    template: str = ""
    resources: dict[str, Any] | None = None
    priority: int = 0

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.workflow_id, self.task, self.generation, self.attempt)

    @property
    def id(self) -> str:
        """`W/<task>/<attempt>`, with `<generation>.` before the attempt after a user retry (facts: jobq 8.2)."""
        return f"{self.workflow_id}/{self.task}/{self._attempt_text}"

    @property
    def _attempt_text(self) -> str:
        return f"{self.generation}.{self.attempt}" if self.generation else str(self.attempt)

    def to_text(self) -> str:
        """The message for a queue, whatever its size."""
        return self._text(self.kwargs, {COMPACT: compact_refs(self.workflow_id, self.upstream)})

    def text_within(self, max_bytes: int, put: Callable[[str, bytes], str]) -> str:
        """The message in at most `max_bytes`. What does not fit is kept by `put(path, data) -> ref` and referred to.

        `path` lies below the run (`__upstream/<task>/<attempt>.json`), as in `Store.put_output`; putting again after
        a crash replaces the same object. `PayloadTooLarge` if even the references do not fit.
        """
        text = self.to_text()
        if len(text) <= max_bytes:  # JSON text is ASCII
            return text
        room = max_bytes - 2 * len(self.id) - _REFERENCES
        compact = compact_refs(self.workflow_id, self.upstream)
        spills_kwargs = len(self._text(self.kwargs, {})) > room
        spills_upstream = bool(self.upstream) and not (
            spills_kwargs and len(self._text({}, {COMPACT: compact})) <= room
        )
        kept: dict[str, Any] = {COMPACT: compact}
        if spills_upstream:
            kept = {COMPACT_BLOB: self._put("upstream", compact, put)}
        if spills_kwargs:
            kept[KWARGS_BLOB] = self._put("kwargs", self.kwargs, put)
        text = self._text({} if spills_kwargs else self.kwargs, kept)
        if len(text) > max_bytes:
            raise PayloadTooLarge(self.task, "kwargs", len(text), max_bytes)
        return text

    def _put(self, kind: str, value: Any, put: Callable[[str, bytes], str]) -> str:
        return put(f"__{kind}/{self.task}/{self._attempt_text}.json", json.dumps(value).encode())

    def _text(self, kwargs: dict[str, Any], extra: dict[str, Any]) -> str:
        carried = _users(kwargs)
        carried["__workflow_id"] = self.workflow_id
        carried["__workflow_task"] = self.task
        carried["__attempt_no"] = self.attempt
        carried.update({key: value for key, value in extra.items() if key != COMPACT or self.upstream})
        if self.generation:
            carried["__generation"] = self.generation
        carried.update({f"__{name}": value for name, value in _held_to(self.resources or {}, "").items()})
        return envelope(carried, self.id)

    @classmethod
    def from_text(cls, text: str | bytes, get: Get | None = None, queue: str = "") -> TaskMessage:
        """The message behind a text. `get` fetches parts that were too large (`blob:` refs), e.g. `Store.get_output`.

        `PoisonMessage` if it can never be read; `BackendError` if a part cannot be fetched now.
        """
        kwargs = open_envelope(text).kwargs
        workflow_id = _field(kwargs, "__workflow_id", str)
        if KWARGS_BLOB in kwargs:
            kwargs = {**_users(fetch(kwargs.pop(KWARGS_BLOB), get)), **kwargs}
        upstream, rest = take_upstream(workflow_id, kwargs, get)
        return cls(
            workflow_id,
            _field(rest, "__workflow_task", str),
            _field(rest, "__attempt_no", int, 1),
            _field(rest, "__generation", int, 0),
            queue,
            _users(rest),
            upstream,
            resources=_held_to(rest, "__") or None,
        )


@dataclass(slots=True)
class Completion:
    """A worker's report of one attempt.

    Attributes:
        attempt: From 1; None from workers that do not know it. Likewise generation.
        output_ref: Inline JSON text, or `blob:<path>`; None for no output.
        error: First line what went wrong (`ValueError: no such file`), then the traceback if there is one.
        kind: Why it failed; None if the worker does not say.
        usage: Measured by whoever ran it: wall_s, cpu_s, peak_rss_bytes, started_at, host, pid, exit_code, signal;
            any may be missing.
    """

    workflow_id: str
    task: str
    success: bool
    output_ref: str | None = None
    error: str | None = None
    attempt: int | None = None
    generation: int | None = None
    kind: FailureKind | None = None
    usage: dict[str, Any] | None = None
    receipt: Any = None
    """Whatever the executor needs to acknowledge it; never stored."""

    def to_text(self) -> str:
        """The message for a completion queue (facts: jobq 8.5)."""
        body: dict[str, Any] = {
            "workflow_id": self.workflow_id,
            "task_name": self.task,
            "success": self.success,
            "output_ref": self.output_ref,
            "error": self.error,
        }
        if self.attempt is not None:
            body["attempt_no"] = self.attempt
        if self.generation is not None:
            body["generation"] = self.generation
        if self.kind is not None and not self.success:
            body["kind"] = self.kind.value
        if self.usage is not None:
            body["usage"] = self.usage
        return envelope({_BODY: json.dumps(body)})

    def text_within(self, max_bytes: int, put: Callable[[str, bytes], str]) -> str:
        """The message in at most `max_bytes`: an output that does not fit is kept by `put(path, data) -> ref` at its
        usual place, and an error that does not is cut in its middle."""
        text = self.to_text()
        if len(text) <= max_bytes:
            return text
        smaller = replace(self, usage=None)
        if self.output_ref is not None and not self.output_ref.startswith(BLOB):
            smaller.output_ref = put(f"{self.task}.json", self.output_ref.encode())
        room = max_bytes - len(replace(smaller, error=None).to_text())
        smaller.error = _cut(self.error, room // _LARGEST_GROWTH)
        return smaller.to_text()

    @classmethod
    def from_text(cls, text: str | bytes) -> Completion:
        """The completion behind a text; keys it does not know are ignored. `PoisonMessage` if it can never be read."""
        kwargs = open_envelope(text).kwargs
        body = read_object(kwargs[_BODY], "the completion") if _BODY in kwargs else kwargs
        usage = body.get("usage")
        return cls(
            _field(body, "workflow_id", str),
            _field(body, "task_name", str),
            _field(body, "success", bool),
            _storable(_field(body, "output_ref", str, None)),
            _storable(_field(body, "error", str, None)),
            _field(body, "attempt_no", int, None),
            _field(body, "generation", int, None),
            _kind(body.get("kind")),
            usage if isinstance(usage, dict) else None,
        )


@dataclass(slots=True)
class Started:
    """An executor's report that an attempt began executing at `at` (seconds since the epoch)."""

    workflow_id: str
    task: str
    generation: int
    attempt: int
    at: float


def _cut(error: str | None, chars: int) -> str | None:
    """The beginning and the end of a text that is too long."""
    if error is None or len(error) <= chars:
        return error
    kept = max(0, chars - 40) // 2
    return f"{error[:kept]}\n... {len(error) - 2 * kept:,} characters left out ...\n{error[len(error) - kept :]}"


def _users(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Without the coordinator's keys, which win over a user's of the same name."""
    return {key: value for key, value in kwargs.items() if key not in _OWN_KEYS}


def _held_to(table: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Memory and runtime that a worker can hold an attempt to; an upstream task's part is no value yet."""
    found = {name: table.get(prefix + name) for name in ("memory", "runtime")}
    return {name: value for name, value in found.items() if isinstance(value, (str, int, float))}


class _Required:
    """Stands for: there is no default."""


def _field(body: dict[str, Any], key: str, kind: type[T], default: Any = _Required) -> Any:
    """The value of a key if it is exactly of that type (a bool is no int); null counts as absent."""
    value = body.get(key)
    if value is None and default is not _Required:
        return default
    if type(value) is not kind:
        raise PoisonMessage(f"{key} is {value!r:.60}, not a {kind.__name__}")
    return value


def _storable(text: str | None) -> str | None:
    """Half surrogate pairs, legal in JSON and in no store, as question marks."""
    return text if text is None or text.isascii() else text.encode("utf-8", "replace").decode()


def _kind(word: Any) -> FailureKind | None:
    try:
        return FailureKind(word)
    except ValueError:
        return None
