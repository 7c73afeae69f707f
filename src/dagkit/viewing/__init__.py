"""What every face shows of a run: read from the store only, at a cost that grows with groups and not with tasks.

`RunViewer(run)` is what a view holds: `look()` for a snapshot, `page(filter, ...)` for some rows of the table of tasks,
`detail(task)` for one, `log(task)` for a log that is followed, `usage()` and `events()` for what tasks took and what
happened, `effect_of_*` for the numbers that a confirmation says.
"""

from __future__ import annotations

from dagkit.viewing.attempts import advice, failure_words
from dagkit.viewing.events import Event
from dagkit.viewing.log_tail import LogTail
from dagkit.viewing.pages import Filter, Page
from dagkit.viewing.sample import GroupUsage
from dagkit.viewing.snapshot import GroupView, Snapshot
from dagkit.viewing.viewer import RunViewer

__all__ = [
    "Event",
    "Filter",
    "GroupUsage",
    "GroupView",
    "LogTail",
    "Page",
    "RunViewer",
    "Snapshot",
    "advice",
    "failure_words",
]
