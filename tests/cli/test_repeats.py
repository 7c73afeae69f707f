"""Complaints of daemons that repeat themselves."""

from __future__ import annotations

import logging

from dagkit.cli.repeats import Repeats


class Log:
    def __init__(self):
        self.now, self.filter = 0.0, Repeats(30.0, clock=lambda: self.now)

    def warn(self, text, *args, level=logging.WARNING):
        """What of it is printed; None if nothing is."""
        record = logging.LogRecord("dagkit.x", level, __file__, 1, text, args, None)
        return record.getMessage() if self.filter.filter(record) else None


def test_a_complaint_that_repeats_itself_is_made_once_in_a_while_and_counted():
    log = Log()

    said = [log.warn("queue %s: away, again in %.1f s", "cpu", seconds) for seconds in (0.5, 1.0, 2.0)]
    log.now = 31.0
    said.append(log.warn("queue %s: away, again in %.1f s", "cpu", 4))

    first, *others, last = said
    assert (first, others) == ("queue cpu: away, again in 0.5 s", [None, None])
    assert last == "queue cpu: away, again in 4.0 s (2 more like it)"


def test_other_complaints_and_what_is_no_complaint_pass():
    log = Log()
    log.warn("a")

    assert log.warn("b") == "b"
    assert [log.warn("task %d: lock lost", number) for number in (1, 2)] == ["task 1: lock lost", "task 2: lock lost"]
    assert [log.warn("said", level=logging.INFO) for _ in range(3)] == ["said"] * 3


def test_what_was_said_long_ago_is_forgotten():
    log = Log()
    for number in range(500):
        log.warn("x" * number)

    assert len(log.filter._seen) <= 200
