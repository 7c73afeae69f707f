"""How often a store is looked at, and what becomes of what was found."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from dagkit.errors import BackendError
from dagkit_tui.watching import Told, Watch
from services.processes import wait_until


class Pump:
    """Says what it is told at once, in the thread that tells it."""

    def post_message(self, told: Told) -> bool:
        told.say()
        return True


class Looks:
    """Answers in order; the last one again and again."""

    def __init__(self, *answers: object) -> None:
        self.answers, self.count = list(answers), 0
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self) -> object:
        self.gate.wait(20)
        answer = self.answers[min(self.count, len(self.answers) - 1)]
        self.count += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def started():
    """Starts a watch of these looks: (watch, what was shown, what failed)."""
    watches = []

    def start(looks: Callable[[], object]):
        shown, failed = [], []
        watch = Watch(Pump(), looks, shown.append, failed.append)  # type: ignore[arg-type]
        watches.append(watch)
        watch.start()
        return watch, shown, failed

    yield start
    for watch in watches:
        watch.stop()
    wait_until(lambda: not any(t.name == "dagkit-tui-watch" for t in threading.enumerate()), "threads end")


def test_only_what_is_new_is_shown(started) -> None:
    looks = Looks("a", "a", "a", "b")
    watch, shown, _ = started(looks)

    def asked() -> bool:
        watch.ask()
        return looks.count >= 6

    wait_until(asked, "six looks")
    assert shown == ["a", "b"]


def test_a_look_that_is_asked_for_while_another_is_under_way_follows_it(started) -> None:
    looks = Looks("a", "b")
    looks.gate.clear()
    watch, shown, _ = started(looks)
    watch.ask()
    looks.gate.set()

    wait_until(lambda: shown == ["a", "b"], "both are shown")


def test_trouble_is_said_once_and_so_is_its_end(started) -> None:
    looks = Looks("a", BackendError("away"), BackendError("away"), "a", "b")
    watch, shown, failed = started(looks)

    def asked() -> bool:
        watch.ask()
        return looks.count >= 7

    wait_until(asked, "seven looks")
    assert (shown, failed) == (["a", "b"], ["away", ""])


def test_a_paused_watch_does_not_look_and_goes_on_at_once(started) -> None:
    looks, beside = Looks("a", "b", "c"), Looks(*range(100))
    watch, shown, _ = started(looks)
    wait_until(lambda: shown, "the first look")
    watch.pause()
    _, told, _ = started(beside)  # as quick as the one that is paused
    wait_until(lambda: len(told) >= 3, "another one has looked three times")
    assert looks.count <= 2  # one may have begun when it was paused
    watch.pause(False)

    wait_until(lambda: shown[-1] == "b", "it goes on")


def test_an_error_that_nobody_thought_of_is_said_and_the_watch_goes_on(started) -> None:
    looks = Looks("a", KeyError("task"), "b")
    watch, shown, failed = started(looks)

    def asked() -> bool:
        watch.ask()
        return shown == ["a", "b"]

    wait_until(asked, "both are shown")
    assert failed == ["KeyError: 'task'", ""]


def test_nothing_is_shown_after_the_end(started) -> None:
    looks = Looks("a", "b")
    looks.gate.clear()
    watch, shown, _ = started(looks)
    watch.stop()
    looks.gate.set()
    wait_until(lambda: not any(t.name == "dagkit-tui-watch" for t in threading.enumerate()), "the thread ends")

    assert shown == []
