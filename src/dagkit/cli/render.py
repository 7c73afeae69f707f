"""Runs and tasks as text for a terminal. Pure: the same view gives the same text; who prints it may drop colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from dagkit.cli.documents import driver_words
from dagkit.cli.view import GroupView, RunView
from dagkit.model.names import fold_id
from dagkit.model.records import Counts, RunRow
from dagkit.model.states import SEGMENT_ORDER, RunStatus, TaskState
from dagkit.notebook.palette import COLOURS, GLYPHS, look_of_run, present
from dagkit.wording import ago, clip, count, duration, memory, pad, plain, width

if TYPE_CHECKING:
    from dagkit.rows import TaskRow

__all__ = ["bar", "counted", "progress_words", "state_words", "status_view", "table", "task_table"]

_TROUBLE_ROWS = 5
_ERROR_COLUMNS = 40


def coloured(text: str, state: TaskState) -> str:
    """A text in the colour of a state."""
    code = COLOURS[state].lstrip("#")
    return click.style(text, fg=(int(code[0:2], 16), int(code[2:4], 16), int(code[4:6], 16)))


def state_words(status: RunStatus | TaskState | str) -> str:
    """`◐ running`, in its colour; a status nobody knows as it is."""
    if isinstance(status, TaskState):
        return coloured(f"{GLYPHS[status]} {status.words}", status)
    state = look_of_run(status)
    if state is None:
        return plain(str(status))
    return coloured(f"{GLYPHS[state]} {status}", state)


def bar(counts: Counts, columns: int) -> str:
    """The states of all tasks in so many columns; a state that occurs has at least one of them."""
    segments = list(present(counts))
    cells = _share([number for _, number in segments], columns)
    return "".join(
        coloured(("█" if state is TaskState.COMPLETED else GLYPHS[state]) * share, state)
        for (state, _), share in zip(segments, cells, strict=True)
    )


def _share(numbers: Sequence[int], columns: int) -> list[int]:
    """Columns for each number, in proportion, at least one each, all together `columns` if there is room."""
    total = sum(numbers)
    if not total:
        return []
    room = max(0, columns - len(numbers))
    cells = [1 + room * number // total for number in numbers]
    largest = max(range(len(numbers)), key=lambda place: numbers[place])
    cells[largest] += max(0, columns - sum(cells))
    return cells


def counted(counts: Counts) -> str:
    """`✓ 92  ✗ 2  ◐ 8`, in colours."""
    return "  ".join(coloured(f"{GLYPHS[state]} {number:,}", state) for state, number in present(counts))


def progress_words(counts: Counts) -> str:
    """`92/131 done, 3 fail, 3 skip`."""
    grouped = counts.grouped()
    skipped = f", {grouped['skipped']} skip" if grouped["skipped"] else ""
    return f"{grouped['completed']}/{grouped['total']} done, {grouped['failed']} fail{skipped}"


def status_view(view: RunView, columns: int = 100) -> str:
    """The whole picture of a run: heading, bar, groups, trouble and what to type next."""
    blocks = [
        _heading(view) + "\n" + bar(view.row.counts, min(44, columns // 2)) + "  " + counted(view.row.counts),
        _group_table(view.groups),
        _trouble(view, columns),
        _next_steps(view),
    ]
    return "\n\n".join(block for block in blocks if block)


def _heading(view: RunView) -> str:
    row = view.row
    parts = [
        f"{click.style(plain(row.name), bold=True)}  {fold_id(row.workflow_id)}",
        state_words(row.status),
        f"{row.counts.ended:,} of {row.counts.total:,}",
    ]
    if view.rate is not None and view.left_s is not None:
        parts += [f"{view.rate:.1f}/s", f"about {duration(view.left_s)} left"]
    if RunStatus(row.status).is_over:
        parts += [f"took {duration(row.updated_at - row.created_at)}", f"{ago(view.now - row.updated_at)} ago"]
    else:
        parts.append(f"driven by {plain(driver_words(row) or 'nobody')}")
        if view.now - row.updated_at > 5:
            parts.append(f"last change {ago(view.now - row.updated_at)} ago")
    if row.cancel_requested and row.status != RunStatus.CANCELLED:
        parts.append("cancel requested")
    return "   ".join(parts)


def _group_table(groups: Sequence[GroupView]) -> str:
    states = [state for state in SEGMENT_ORDER[:6] if any(group.counts.of(state) for group in groups)]
    head = ["group", "tasks", *(GLYPHS[state] for state in states), "queue", "median", "peak"]
    body = []
    for group in groups:
        numbers = [_cell(group.counts.of(state), state) for state in states]
        median = group.waits if group.waits else duration(group.median_s) if group.median_s is not None else ""
        peak = memory(group.peak_bytes) if group.peak_bytes else ""
        body.append(
            [clip(plain(group.title), 32), f"{group.counts.total:,}", *numbers, plain(group.queue), plain(median), peak]
        )
    if not any(row[-1] for row in body):
        head, body = head[:-1], [row[:-1] for row in body]
    return table(head, body, right=range(1, 2 + len(states)), indent=2)


def _cell(number: int, state: TaskState) -> str:
    return coloured(f"{number:,}", state) if number else "·"


def _trouble(view: RunView, columns: int) -> str:
    run = _short_id(view.row.workflow_id)
    rows = [(TaskState.FAILED, task) for task in view.failed[:_TROUBLE_ROWS]]
    rows += [(TaskState.SKIPPED, task) for task in view.doubtful[:_TROUBLE_ROWS]]
    if not rows:
        return ""
    commands = [f"dagkit logs {run} {shell_word(view.failed[0].name)}", f"dagkit retry {run}"] if view.failed else []
    names = max(width(clip(plain(task.name), 32)) for _, task in rows)
    commanded = max((width(command) for command in commands), default=0)
    room = max(20, columns - names - commanded - 9)
    lines = []
    for place in range(max(len(rows), len(commands))):
        command = commands[place] if place < len(commands) else ""
        if place < len(rows):
            state, task = rows[place]
            left = coloured(f"{GLYPHS[state]} {pad(clip(plain(task.name), 32), names)}", state)
            text = f"  {left}   {pad(clip(plain(_first_line(task.error)), room), room if command else 0)}"
        else:
            text = " " * (names + room + 7)
        lines.append(f"{text}  {command}".rstrip())
    hidden = len(view.failed) - _TROUBLE_ROWS
    if hidden > 0:
        lines.append(f"  and {hidden:,} more: dagkit tasks {run} --status failed")
    return "\n".join(lines)


def _next_steps(view: RunView) -> str:
    row = view.row
    if row.driven_by is None and not RunStatus(row.status).is_over:
        return "  nobody drives this run: start `dagkit coordinator`, or see `dagkit doctor`"
    if row.error and not view.failed:
        return f"  {plain(_first_line(row.error))}"
    return ""


def task_table(tasks: Iterable[tuple[TaskRow, int, int]], *, verbose: bool = False) -> str:
    """Lines for (task, satisfied dependencies, dependencies).

    `verbose` leaves long errors whole, and says what tasks ask for if any of them asks for something.
    """
    tasks = list(tasks)
    asks = verbose and any(task.resources for task, _, _ in tasks)
    body = []
    for task, done, total in tasks:
        error = plain(task.error) if verbose else plain(_first_line(task.error))
        if not verbose and len(error) > _ERROR_COLUMNS:
            error = error[: _ERROR_COLUMNS - 3] + "…"
        asked = [plain(task.asks_for)] if asks else []
        deps = f"{done}/{total}" if total else ""
        body.append([plain(task.name), state_words(task.state), plain(task.queue), *asked, deps, error])
    return table(["Task", "Status", "Queue", *(["Asks for"] if asks else []), "Deps", "Error"], body)


def table(head: Sequence[str], body: Iterable[Sequence[str]], *, right: Iterable[int] = (), indent: int = 0) -> str:
    """Columns as wide as what stands in them; `right` are those of numbers."""
    rows = [list(head), *(list(row) for row in body)]
    numbers = set(right)
    widths = [max(width(click.unstyle(row[place])) for row in rows) for place in range(len(head))]
    lines = []
    for row in rows:
        cells = []
        for place, cell in enumerate(row):
            space = " " * (widths[place] - width(click.unstyle(cell)))
            cells.append(space + cell if place in numbers else cell + space)
        lines.append((" " * indent + "  ".join(cells)).rstrip())
    lines[0] = click.style(lines[0], dim=True)
    return "\n".join(lines)


def has_long_errors(tasks: Iterable[Any]) -> bool:
    """Whether `task_table` would cut an error that is worth a hint."""
    return any(len(task.error) > _ERROR_COLUMNS for task in tasks)


def shell_word(text: str) -> str:
    """A word as it must be typed in a shell."""
    import shlex

    return shlex.quote(plain(text))


def runs_left(row: RunRow) -> str:
    """How many tasks of a run have not ended."""
    return count(row.counts.total - row.counts.ended, "task")


def _short_id(workflow_id: str) -> str:
    """An id as short as it can be typed."""
    return workflow_id if len(workflow_id) <= 12 else workflow_id[:8]


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
