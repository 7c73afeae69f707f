from __future__ import annotations

import subprocess
import sys
import time

import pytest

from dagkit.runtime.usage import Meter


def test_a_short_attempt_costs_nothing_to_measure() -> None:
    assert Meter().end(0.0005) == {}


def test_processor_time_of_an_attempt_is_its_own() -> None:
    meter = Meter()
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass

    first, second = meter.end(0.06), meter.end(0.002)

    assert 0.04 < first["cpu_s"] < 1
    assert second["cpu_s"] < 0.04


def test_processes_of_an_attempt_count() -> None:
    meter = Meter()
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)

    assert meter.end(0.1)["cpu_s"] > 0.02


def hold(mebibytes: int) -> bytearray:
    large = bytearray(mebibytes << 20)
    large[::4096] = b"x" * len(large[::4096])
    return large


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be told to forget a peak")
def test_every_attempt_has_a_peak_of_its_own() -> None:
    meter = Meter()
    large = hold(300)
    first = meter.end(0.01)
    del large
    second = meter.end(0.01)

    assert first["peak_rss_bytes"] > 300 << 20
    assert second["peak_rss_bytes"] <= first["peak_rss_bytes"] + (1 << 20)
    third = meter.end(0.01)
    assert third["peak_rss_bytes"] < first["peak_rss_bytes"] - (200 << 20)


def test_where_the_kernel_remembers_the_peak_belongs_to_the_attempt_in_which_it_rose() -> None:
    meter = Meter(forgets=False)
    large = hold(300)

    first = meter.end(0.01)
    del large
    second = meter.end(0.01)

    assert first["peak_rss_bytes"] > 300 << 20
    assert "peak_rss_bytes" not in second


def test_there_a_long_attempt_below_an_earlier_peak_is_known_by_samples() -> None:
    meter = Meter(forgets=False)
    meter.sample()
    assert meter.end(2.0)["peak_rss_bytes"] > 1 << 20

    meter.sample(5)
    meter.sample(7)
    assert meter.end(2.0)["peak_rss_bytes"] == 7


def test_the_size_of_the_process_that_started_this_one_does_not_count() -> None:
    """A worker of a large notebook would otherwise never see a task's peak below the notebook's size."""
    script = "from dagkit.runtime.usage import own_peak_bytes; print(own_peak_bytes())"
    large = hold(400)

    peak = int(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout)

    assert len(large) == 400 << 20
    assert peak < 200 << 20
