"""Looks that a store may be slow to answer, in a thread of their own: no key ever waits for one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from textual.message import Message
from textual.message_pump import MessagePump

from dagkit.errors import DagkitError

__all__ = ["Told", "Watch", "words_of"]

T = TypeVar("T")

_SHORTEST_S: Final = 0.5
_LONGEST_S: Final = 5.0
_SLOWER: Final = 1.5
#: A look that takes long is not repeated at once: the store has others to serve.
_SHARE: Final = 4.0


def words_of(error: Exception) -> str:
    """What is said of an error: dagkit's in their own words, others by their kind too, for they are faults of ours."""
    return str(error) if isinstance(error, DagkitError) else f"{type(error).__name__}: {error}"


class Told(Message, bubble=False):
    """Something that a thread has to say, to be said in the thread of the app."""

    def __init__(self, say: Callable[[], None]) -> None:
        super().__init__()
        self.say = say


class Watch(Generic[T]):
    """Calls `look` again and again, for as long as a screen is there, and has `show` called with what it found.

    Pauses grow from half a second to five while nothing changes, and last at least four times as long as the look did.

    Args:
        pump: Receives a `Told` for each look that found something else than the one before.
        look: Called in the thread of the watch, one call at a time.
        show: Called in the thread of the app.
        fail: Called in the thread of the app with the words of an error; "" once looks succeed again.
    """

    def __init__(
        self, pump: MessagePump, look: Callable[[], T], show: Callable[[T], None], fail: Callable[[str], None]
    ) -> None:
        self._pump, self._look, self._show, self._fail = pump, look, show, fail
        self._wake = threading.Condition()
        self._is_asked, self._is_over, self._is_paused = True, False, False
        self._shown: Any = None
        self._error = ""
        self._thread = threading.Thread(target=self._run, name="dagkit-tui-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self) -> None:
        """Look as soon as the look under way is over: something else is wanted than before."""
        with self._wake:
            self._is_asked = True
            self._wake.notify()

    def pause(self, is_paused: bool = True) -> None:
        """Look no more while nobody sees it; with False, go on at once."""
        with self._wake:
            self._is_paused, self._is_asked = is_paused, not is_paused
            self._wake.notify()

    def stop(self) -> None:
        """Look no more. Does not wait for a look under way, whose finding goes nowhere."""
        with self._wake:
            self._is_over = True
            self._wake.notify()

    def _run(self) -> None:
        pause_s = _SHORTEST_S
        while self._await(pause_s):
            began = time.monotonic()
            has_changed = self._once()
            took_s = time.monotonic() - began
            pause_s = _SHORTEST_S if has_changed else min(_LONGEST_S, pause_s * _SLOWER)
            pause_s = max(pause_s, _SHARE * took_s)

    def _await(self, pause_s: float) -> bool:
        """Until it is time for a look; False if there will be none."""
        deadline = time.monotonic() + pause_s
        with self._wake:
            while not self._is_over:
                left = deadline - time.monotonic()
                if self._is_asked or (left <= 0 and not self._is_paused):
                    self._is_asked = False
                    return True
                self._wake.wait(None if self._is_paused else left)
            return False

    def _once(self) -> bool:
        try:
            found = self._look()
        except Exception as error:  # a thread that ended would leave the screen as it is, without a word
            words = words_of(error)
            if words != self._error:
                self._error = words
                self._tell(lambda: self._fail(words))
            return False
        if self._error:
            self._error = ""
            self._tell(lambda: self._fail(""))
        if found == self._shown:
            return False
        self._shown = found
        self._tell(lambda: self._show(found))
        return True

    def _tell(self, say: Callable[[], None]) -> None:
        if not self._is_over:
            self._pump.post_message(Told(say))
