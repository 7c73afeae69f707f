"""Costly work is rationed, and rates come from what was seen."""

from __future__ import annotations

import pytest

from dagkit.viewing.pace import Allowance, RateMeter


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_work_takes_its_share_of_the_time_and_no_more():
    clock = Clock()
    allowance = Allowance(clock, 0.1, 0.2)

    with allowance.spending():
        clock.now = 1.0

    clock.now = 9.9
    assert not allowance.is_due
    clock.now = 10.0
    assert allowance.is_due


def test_work_that_fails_is_paid_for_too():
    clock = Clock()
    allowance = Allowance(clock, 0.5, 0.2)

    with pytest.raises(ValueError, match="no"), allowance.spending():  # noqa: PT012
        clock.now = 5.0
        raise ValueError("no")

    assert not allowance.is_due


def test_the_rate_is_that_of_the_window():
    meter = RateMeter(window_s=10.0)
    for second in range(100):
        meter.note(float(second), second * (1 if second < 50 else 3))

    assert meter.rate(100.0, 297) == pytest.approx(3.0, rel=0.1)


def test_little_is_known_at_first_and_nothing_of_a_run_that_stands():
    meter = RateMeter()
    meter.note(0.0, 10)

    assert meter.rate(5.0, 10) == 2.0
    meter.note(60.0, 10)
    assert meter.rate(65.0, 10) is None


def test_a_retry_begins_anew():
    meter = RateMeter()
    meter.note(0.0, 100)
    meter.note(10.0, 50)

    assert meter.rate(10.0, 50) == 5.0


def test_looks_are_few_however_often_one_looks():
    meter = RateMeter()
    for i in range(10_000):
        meter.note(i * 0.01, i)

    assert len(meter._looks) < 130
    assert meter.rate(100.0, 10_000) == pytest.approx(100.0, rel=0.1)
