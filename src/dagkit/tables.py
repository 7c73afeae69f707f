"""Small tables that read well in a notebook, at a prompt and as data."""

from __future__ import annotations

import html
import importlib.util
import re
import statistics
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from dagkit.prediction import percentile_of
from dagkit.progress import format_duration

if TYPE_CHECKING:
    from dagkit.errors import TaskFailed
    from dagkit.model.records import RunRow
    from dagkit.rows import TaskRow

__all__ = ["Failures", "Table", "error_groups", "has_pandas", "runs_table", "usage_table"]

#: A display is for looking at; whoever wants more has the list.
MAX_SHOWN, MAX_FAILURES, MAX_TEXT = 500, 50, 4_000
_DIGITS = re.compile(r"(?:0x[0-9a-f]+|\d[\d.,]*)", re.IGNORECASE)


class Table(list[dict[str, Any]]):
    """A list of rows (dicts with the same keys) that displays as a table.

    It is an ordinary list: index it, loop over it, or give it to `pandas.DataFrame`. With `shown` (heading: a row as
    words) it displays something else than its columns, for rows that hold more than anybody wants to look at.
    """

    def __init__(
        self,
        rows: Iterable[Mapping[str, Any]],
        columns: Iterable[str] = (),
        shown: Mapping[str, Callable[[Mapping[str, Any]], Any]] | None = None,
    ) -> None:
        super().__init__(dict(row) for row in rows)
        self.columns = list(columns) or (list(self[0]) if self else [])
        self._shown = shown

    def _display(self) -> Table:
        """What is looked at, if that is not the rows themselves."""
        if not self._shown:
            return self
        return Table([{head: words(row) for head, words in self._shown.items()} for row in self], self._shown)

    def to_frame(self) -> Any:
        """The rows as a `pandas.DataFrame`; `MissingExtra` if pandas is not installed."""
        try:
            import pandas
        except ImportError:
            from dagkit.errors import MissingExtra

            raise MissingExtra("pandas", "dev", "Table.to_frame()") from None
        return pandas.DataFrame(list(self), columns=self.columns)

    def __repr__(self) -> str:
        if not self:
            return "(no rows)"
        shown = self._display()
        cells = [shown.columns, *([_text(row.get(column)) for column in shown.columns] for row in shown)]
        widths = [max(len(row[k]) for row in cells) for k in range(len(shown.columns))]
        return "\n".join(
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells
        )

    def _repr_html_(self) -> str:
        shown = self._display()
        columns, rows = shown.columns, shown[:MAX_SHOWN]
        numeric = {
            c for c in columns if any(_is_number(row.get(c)) or isinstance(row.get(c), _Measured) for row in rows)
        }
        sides = {column: "right" if column in numeric else "left" for column in columns}
        head = "".join(f"<th style='text-align:{sides[c]}'>{html.escape(c)}</th>" for c in columns)
        body = "".join(
            "<tr>"
            + "".join(f"<td style='text-align:{sides[c]}'>{html.escape(_text(row.get(c)))}</td>" for c in columns)
            + "</tr>"
            for row in rows
        )
        more = len(self) - MAX_SHOWN
        rest = f"<p>and {more:,} more rows: this is a list, or a table with .to_frame()</p>" if more > 0 else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


class Failures(list["TaskFailed"]):
    """Failures of tasks: a list that displays as a table with the end of each traceback."""

    def __repr__(self) -> str:
        return "\n".join(
            f"✗ {one.task}  {one.error}  (attempt {one.attempts} of {one.max_attempts})" for one in self
        ) or ("(no failures)")

    def _repr_html_(self) -> str:
        if not self:
            return "<p>No task failed.</p>"
        shown = "".join(_failure_html(one) for one in self[:MAX_FAILURES])
        more = len(self) - MAX_FAILURES
        return shown + (f"<p>and {more:,} more: this is a list</p>" if more > 0 else "")


def _failure_html(failure: TaskFailed) -> str:
    """A line that opens: first what the task said, then its traceback and the end of its log."""
    words = "\n\n".join(text[-MAX_TEXT:] for text in (failure.traceback, failure.log_tail) if text)
    facts = f"attempt {failure.attempts} of {failure.max_attempts}, {html.escape(failure.kind)}"
    head = (
        f"<b style='color:#d55e00'>✗ {html.escape(failure.task)}</b> {html.escape(failure.error[:400])} "
        f"<span style='opacity:.65'>{facts}</span>"
    )
    return f"<details><summary>{head}</summary><pre>{html.escape(words)}</pre></details>" if words else f"<p>{head}</p>"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    text = str(value)
    return text if len(text) <= 80 else text[:79] + "…"


class _Measured(str):
    """A number in words, with its unit: it stands to the right like a number."""


def _measured(name: str, words: Callable[[float], str]) -> Callable[[Mapping[str, Any]], Any]:
    return lambda row: None if row.get(name) is None else _Measured(words(row[name]))


def _mib(size: float) -> str:
    return f"{size / 1024:.1f} GiB" if size >= 1024 else f"{size:.0f} MiB"


_USAGE_SHOWN: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    **{name: itemgetter(name) for name in ("template", "tasks", "attempts", "hosts")},
    "time median": _measured("time_s_median", format_duration),
    "p95": _measured("time_s_p95", format_duration),
    "max": _measured("time_s_max", format_duration),
    "peak median": _measured("peak_mib_median", _mib),
    "peak max": _measured("peak_mib_max", _mib),
    "cpu median": _measured("cpu_s_median", format_duration),
    "wait median": _measured("wait_s_median", format_duration),
}


def has_pandas() -> bool:
    return importlib.util.find_spec("pandas") is not None


def runs_table(rows: Iterable[RunRow]) -> Table:
    """One line a run."""
    columns = ("run", "name", "status", "ended", "failed", "tasks", "driven by")
    return Table(
        (
            dict(
                zip(
                    columns,
                    (
                        row.workflow_id,
                        row.name,
                        str(row.status),
                        row.counts.ended,
                        row.counts.grouped()["failed"],
                        row.counts.total,
                        row.driven_by,
                    ),
                    strict=True,
                )
            )
            for row in rows
        ),
        columns,
    )


def error_groups(rows: Iterable[TaskRow]) -> Table:
    """Failures that differ in nothing but numbers, together: how many, of which template, and one to look at."""
    groups: dict[tuple[str, str, str], list[TaskRow]] = {}
    for row in rows:
        first = row.error.partition("\n")[0]
        groups.setdefault((row.template, row.kind or "user", _DIGITS.sub("N", first)), []).append(row)
    return Table(
        (
            {
                "count": len(members),
                "template": template,
                "kind": kind,
                "error": members[0].error.partition("\n")[0],
                "example": members[0].name,
            }
            for (template, kind, _), members in sorted(groups.items(), key=lambda group: -len(group[1]))
        ),
        ("count", "template", "kind", "error", "example"),
    )


def usage_table(rows: Iterable[TaskRow]) -> Table:
    """Per template: how many tasks and attempts, and how long they took and how much memory they used."""
    groups: dict[str, list[TaskRow]] = {}
    for row in rows:
        groups.setdefault(row.template, []).append(row)
    return Table(
        (
            {
                "template": template,
                "tasks": len(members),
                "attempts": sum(member.attempt for member in members),
                "hosts": len({member.usage["host"] for member in members if "host" in member.usage}) or None,
                **_spread("time_s", [m.duration_s for m in members if m.duration_s is not None]),
                **_spread(
                    "peak_mib", [m.usage["peak_rss_bytes"] / 2**20 for m in members if "peak_rss_bytes" in m.usage]
                ),
                **_spread("cpu_s", [m.usage["cpu_s"] for m in members if "cpu_s" in m.usage]),
                **_spread("wait_s", [m.wait_s for m in members if m.wait_s is not None]),
            }
            for template, members in groups.items()
        ),
        shown=_USAGE_SHOWN,
    )


def _spread(name: str, values: list[float]) -> dict[str, float | None]:
    if not values:
        return {f"{name}_{statistic}": None for statistic in ("min", "median", "mean", "p95", "max")}
    return {
        f"{name}_min": min(values),
        f"{name}_median": statistics.median(values),
        f"{name}_mean": statistics.fmean(values),
        f"{name}_p95": percentile_of(values, 95),
        f"{name}_max": max(values),
    }
