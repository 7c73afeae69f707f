"""Names: what a run, a task or a service may be called, and what is derived from a name (facts: jobq, section 7.1)."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote_from_bytes

from dagkit.errors import UsageError

__all__ = [
    "ServiceNames",
    "check_task_name",
    "check_workflow_id",
    "closest",
    "fold_id",
    "partition_key",
    "path_name",
    "task_name_fault",
]

#: A run's id is part of file and blob names and a table key; a task's name is part of a blob name (1,024 characters).
MAX_WORKFLOW_ID_BYTES: Final = 200
MAX_TASK_NAME_CHARS: Final = 800
MAX_FILE_NAME_BYTES: Final = 200

_FORBIDDEN_IN_ID: Final = frozenset("/\\#?")
_UNPRINTABLE: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
_PREFIX: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,41}")
_ORDINARY: Final = re.compile(r"(?!__)[A-Za-z0-9_-]{1,200}\Z")
_SAFE_IN_FILE_NAME: Final = "+,=@"


def check_workflow_id(text: object) -> str:
    """`text` if a run may have this id; otherwise `UsageError` with the rule."""
    fault = _workflow_id_fault(text)
    if fault:
        raise UsageError(
            f"workflow id {text!r:.100}: {fault}. An id is 1 to {MAX_WORKFLOW_ID_BYTES} bytes of text without "
            f"/ \\ # ? and control characters."
        )
    return str(text)


def _workflow_id_fault(text: object) -> str | None:
    if not isinstance(text, str):
        return f"is {type(text).__name__}, not text"
    if not text.strip():
        return "is blank"
    if text in (".", ".."):
        return "would be a folder of its own meaning"
    if bad := next((char for char in text if char in _FORBIDDEN_IN_ID or _is_unprintable(char)), None):
        return f"contains {bad!r}"
    if len(text.encode()) > MAX_WORKFLOW_ID_BYTES:
        return "is too long"
    return None


def check_task_name(name: object) -> str:
    """`name` if a task may be called so; otherwise `UsageError` with the rule."""
    if not isinstance(name, str):
        raise UsageError(f"task name {name!r:.100}: is {type(name).__name__}, not text")
    if fault := task_name_fault(name):
        raise UsageError(f"task name {name!r:.100}: {fault}")
    return name


def task_name_fault(name: str) -> str | None:
    """Why a task may not be called so, as the second half of a sentence; None if it may."""
    if _ORDINARY.match(name):
        return None
    if not name.strip():
        return "may not be blank"
    if name.startswith("__"):
        return "may not start with __, which is reserved"
    if len(name) > MAX_TASK_NAME_CHARS:
        return f"has {len(name):,} characters, over the {MAX_TASK_NAME_CHARS:,} a name may have"
    if not name.isprintable() and (bad := next(filter(_is_unprintable, name), None)):
        return f"contains the control character {bad!r}"
    if "." in name and not {".", ".."}.isdisjoint(name.split("/")):
        return 'may not have "." or ".." between slashes'
    return None


def _is_unprintable(char: str) -> bool:
    return unicodedata.category(char) in _UNPRINTABLE


def partition_key(workflow_id: str) -> str:
    """Partition of the index table that holds a run: `wf-00` to `wf-0f`."""
    return f"wf-{sum(map(ord, workflow_id)) & 15:02x}"


@dataclass(frozen=True, slots=True)
class ServiceNames:
    """What the containers, the table and the queue of a prefix are called."""

    prefix: str

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix):
            raise UsageError(
                f"prefix {self.prefix!r:.100}: a prefix is a letter followed by up to 41 letters and digits, "
                f"because it becomes part of container, table and queue names."
            )

    @property
    def state_container(self) -> str:
        return f"{self.prefix.lower()}-workflows"

    @property
    def output_container(self) -> str:
        return f"{self.prefix.lower()}-outputs"

    @property
    def index_table(self) -> str:
        return f"{self.prefix}WorkflowsIndex"

    @property
    def completion_queue(self) -> str:
        return f"{self.prefix.lower()}-workflow-completions"


def path_name(task_name: str) -> str:
    """The task's name as one safe file name of at most 200 bytes; different names give different file names."""
    name = quote_from_bytes(task_name.encode("utf-8", "surrogatepass"), safe=_SAFE_IN_FILE_NAME).replace("~", "%7E")
    if name[:1] in (".", "-"):
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if len(name) <= MAX_FILE_NAME_BYTES:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:32]
    head = name[: MAX_FILE_NAME_BYTES - 33]
    return f"{re.sub('%.?$', '', head)}~{digest}"


def fold_id(workflow_id: str) -> str:
    """An id as people read it, `3f9c…d1`; short ones stay as they are."""
    return workflow_id if len(workflow_id) <= 12 else f"{workflow_id[:4]}…{workflow_id[-2:]}"


def closest(word: str, candidates: Collection[str], limit: int = 1) -> list[str]:
    """Candidates that look like `word`, best first; cost is bounded by comparing only names of similar length."""
    near = [name for name in candidates if abs(len(name) - len(word)) <= 4 and name != word]
    if len(near) > 2_000:
        near = [name for name in near if name[:1] == word[:1] and name[-1:] == word[-1:]][:2_000]
    import difflib  # slow to import, and needed only for what is misspelt

    return difflib.get_close_matches(word[:200], near, n=limit, cutoff=0.7)
