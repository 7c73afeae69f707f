"""The live view of a run behind whatever shows it: one thread that looks, answers and publishes, at most ten times a
second, less often when nothing changes, and not at all when nobody watches."""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from dagkit.embedded import driving
from dagkit.errors import BackendError, DagkitError
from dagkit.notebook import wording
from dagkit.notebook.actions import Actions
from dagkit.notebook.result import of_result
from dagkit.notebook.selection import Selection
from dagkit.viewing import RunViewer, Snapshot

if TYPE_CHECKING:
    from dagkit.run import Run

__all__ = ["LiveView"]

log = logging.getLogger("dagkit.notebook")

LEAST_S: Final = 0.1
MOST_S: Final = 2.0
LINGER_S: Final = 5.0
"""After a run is over and nobody asked anything for so long, the thread ends; the next question starts it again."""
ABSENT_S: Final = 90.0
"""A front end says that it is there three times in this time; after it nobody is taken to watch."""
_SHARE: Final = 0.25
_STEP: Final = 1.4

Publish = Callable[[dict[str, Any]], None]

_views: weakref.WeakSet[LiveView] = weakref.WeakSet()


class LiveView:
    """Looks at a run for those who watch. `publish` is given what changed by name, from the view's own thread.

    Names: `head`, `groups`, `page`, `task`, `log`, `usage`, `events`, `result`, `chosen`, `confirm`, `notice`,
    `answered`. Each value has a bounded size, whatever the number of tasks. Thread-safe.
    """

    def __init__(self, run: Run, publish: Publish, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.run, self.viewer = run, RunViewer(run, clock=clock)
        self._publish, self._clock = publish, clock
        self._selection, self._actions = Selection(self.viewer, clock), Actions(self.viewer)
        self._condition = threading.Condition()
        self._asked: deque[Mapping[str, Any]] = deque()
        self._thread: threading.Thread | None = None
        self._is_closed, self._holds, self._looks, self._last_seen = False, 0, 0, clock()
        self._published: dict[str, Any] = {}
        self._watchers: set[str] = set()
        self.last: Snapshot | None = None
        _views.add(self)
        self.when_over: Callable[[], None] = lambda: None
        """Called once, from the view's thread, when the run is seen to be over."""

    # --- for whoever shows it

    def ask(self, question: Mapping[str, Any]) -> None:
        """Take a message of a front end: it is answered by what is published next. Returns at once."""
        with self._condition:
            self._note_watcher(question)
            self._asked.append(question)
            self._start()
            self._condition.notify_all()

    def _note_watcher(self, question: Mapping[str, Any]) -> None:
        """A front end draws the view anew before it says that the old drawing is gone: they are told apart."""
        self._last_seen = self._clock()
        watcher = str(question.get("view", ""))[:40]
        if question.get("ask") != "gone":
            self._watchers = {watcher, *list(self._watchers)[-20:]}
        else:
            self._watchers.discard(watcher)
            if not self._watchers:
                self._last_seen -= ABSENT_S

    def start(self) -> None:
        """Begin to look, if that is not going on."""
        with self._condition:
            self._last_seen = self._clock()
            self._start()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Somebody waits for the run: go on looking though no front end can say that it is there."""
        with self._condition:
            self._holds += 1
            self._start()
        try:
            yield
        finally:
            with self._condition:
                self._holds -= 1
                self._last_seen = self._clock()

    def settle(self, timeout_s: float = 3.0) -> None:
        """Return when the view has seen the run as it is now, at the latest after the time."""
        with self._condition:
            before = self._looks
            self._start()
            self._asked.append({})
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._looks > before + 1 or self._is_closed, timeout=timeout_s)

    def close(self) -> None:
        """End the thread. Returns when it has ended."""
        with self._condition:
            self._is_closed, thread = True, self._thread
            self._condition.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    @property
    def is_looking(self) -> bool:
        return self._thread is not None

    def _start(self) -> None:
        if self._thread is None and not self._is_closed:
            self._thread = threading.Thread(target=self._work, name="dagkit-view", daemon=True)
            self._thread.start()

    # --- the thread

    def _work(self) -> None:
        pause_s = LEAST_S
        while self._is_wanted():
            began = self._clock()
            try:
                changed = self._step()
            except BackendError as error:
                self._tell({"head": {**self._published.get("head", {}), "problem": str(error)}})
                changed, pause_s = False, MOST_S
            except Exception as error:  # a fault of ours must be seen in the view, not end it silently
                log.exception("the view of run %s", self.run.id)
                self._tell({"head": {**self._published.get("head", {}), "problem": f"{type(error).__name__}: {error}"}})
                changed, pause_s = False, MOST_S
            with self._condition:
                self._looks += 1
                self._condition.notify_all()
            pause_s = LEAST_S if changed else min(MOST_S, pause_s * _STEP)
            self._rest(began, max(pause_s, (self._clock() - began) / _SHARE))

    def _rest(self, began: float, pause_s: float) -> None:
        """Until it is time for the next look; a question shortens it to what keeps ten updates a second."""
        with self._condition:
            self._condition.wait_for(lambda: self._asked or self._is_closed, timeout=pause_s)
            too_soon_s = began + LEAST_S - self._clock()
            if too_soon_s > 0 and not self._is_closed:
                self._condition.wait_for(lambda: self._is_closed, timeout=too_soon_s)

    def _is_wanted(self) -> bool:
        """Whether to go on; if not, the thread is forgotten under the lock, so that a question starts another."""
        with self._condition:
            unseen_s = self._clock() - self._last_seen
            is_over = self.last is not None and self.last.is_over
            is_idle = not self._asked and not self._holds and unseen_s > (LINGER_S if is_over else ABSENT_S)
            if is_idle or self._is_closed:
                self._thread = None
                return False
            return True

    def _step(self) -> bool:
        """Answer what was asked, look, publish what is new. Whether anything about the run was."""
        update = self._answers()
        shown, before = self.viewer.look(), self.last
        self.last = shown
        has_changed = before is None or before.mark != shown.mark
        here = driving(self.run.store.url, self.run.id) is not None
        update["head"] = wording.of_snapshot(shown, here)
        update["groups"] = [wording.of_group(group) for group in shown.groups]
        update.update(self._selection.refreshed(has_changed))
        new = {name: value for name, value in update.items() if self._is_new(name, value, has_changed)}
        if new:
            self._tell(new)
        if shown.is_over and not (before and before.is_over):
            self.when_over()
        return has_changed or "log" in new

    def _is_new(self, name: str, value: Any, has_changed: bool) -> bool:
        """Clocks are told with news, or the front end counts itself."""
        old = self._published.get(name)
        if name == "head" and old and not has_changed:
            return {**old, "elapsed_s": 0, "age_s": 0} != {**value, "elapsed_s": 0, "age_s": 0}
        return bool(old != value)

    def _tell(self, update: dict[str, Any]) -> None:
        self._published.update(update)
        self._publish(update)

    def _answers(self) -> dict[str, Any]:
        update: dict[str, Any] = {}
        while self._asked:
            question = self._asked.popleft()
            try:
                update.update(self._answer(question))
            except (DagkitError, KeyError, TypeError, ValueError) as error:
                update["notice"] = {"text": str(error), "is_bad": True, "at": time.time()}
            if "n" in question:
                update["answered"] = question["n"]
        return update

    def _answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        match question.get("ask"):
            case "page":
                return self._selection.choose(question)
            case "task":
                return self._selection.choose_task(question)
            case "tab":
                return self._selection.choose_tab(question)
            case "gone":
                self._selection.forget(str(question.get("view", ""))[:40])
                return {}
            case "result":
                row = self.viewer.detail(str(question.get("name")))
                return {"result": of_result(self.run.store, row)}
            case "effect":
                return {"confirm": self._actions.effect(question)}
            case "do":
                return {
                    "confirm": {},
                    "notice": {"text": self._actions.do(question), "is_bad": False, "at": time.time()},
                }
            case "dismiss":
                return {"confirm": {}}
            case _:
                return {}


@atexit.register
def close_all() -> None:
    """End the threads of all views of this process."""
    for view in list(_views):
        view.close()
