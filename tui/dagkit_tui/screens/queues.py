"""The queues of the store's service: how deep, how old, and who works on them."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Static

from dagkit.wording import ago
from dagkit_tui import words
from dagkit_tui.looks import QueueLook, QueuesLook, look_at_queues
from dagkit_tui.screens.base import DagkitScreen
from dagkit_tui.table import Column, Table

__all__ = ["QueuesScreen"]


class QueuesScreen(DagkitScreen):
    """What `q` opens."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "back", "Back")]

    def compose(self) -> ComposeResult:
        yield Static(id="heading", markup=False)
        yield Static(id="trouble", markup=False)
        yield Table[QueueLook](_columns(), lambda queue: queue.stats.name, empty="reading the queues …", id="queues")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#trouble").display = False
        self.query_one("#queues").focus()
        heading = Text(" queues of ").append_text(words.own(self.dagkit.store_name, "bold"))
        self.query_one("#heading", Static).update(heading)
        self.watch_store(lambda: look_at_queues(self.dagkit.transport), self._show)

    def _show(self, look: QueuesLook) -> None:
        table: Table[QueueLook] = self.query_one("#queues", Table)
        table.empty = "no queues yet: runs that this process drives need none"
        table.fill(dict(enumerate(look.queues)), len(look.queues), anew=True)

    def action_back(self) -> None:
        self.dismiss()


def _columns() -> list[Column[QueueLook]]:
    return [
        Column("queue", 20, lambda queue, width: words.own(queue.stats.name), grow=1),
        Column("waiting", 8, lambda queue, width: Text(f"{queue.stats.waiting:,}"), is_right=True),
        Column("taken", 8, lambda queue, width: Text(f"{queue.stats.locked:,}"), is_right=True),
        Column("oldest", 8, _oldest, is_right=True),
        Column("workers", 8, _number, is_right=True),
        Column("who", 10, _who, grow=2, least=70),
    ]


def _oldest(queue: QueueLook, width: int) -> Text:
    return Text("–" if queue.stats.oldest_age_s is None else ago(queue.stats.oldest_age_s))


def _number(queue: QueueLook, width: int) -> Text:
    if queue.stats.name.endswith("workflow-completions"):
        return Text("–")  # the coordinator takes these
    if queue.workers is None:
        return Text("?")
    is_unserved = not queue.workers and queue.stats.waiting
    return Text(f"{len(queue.workers):,}" + (" ✗" if is_unserved else ""))


def _who(queue: QueueLook, width: int) -> Text:
    if queue.workers is None:
        return Text("the service does not know", "dim")
    return words.own(", ".join(worker.split(" #", 1)[0] for worker in queue.workers))
