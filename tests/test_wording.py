"""Numbers, times and foreign text as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagkit import wording


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("fine", "fine"),
        ("größer ✓", "größer ✓"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("a\nb", "a b"),
        ("x\u202egpj", "x\\u202egpj"),  # right-to-left override, which reorders what is read
        ("bell\x07", "bell\\x07"),
    ],
)
def test_what_a_terminal_would_obey_is_shown(text: str, shown: str) -> None:
    assert wording.plain(text) == shown


@given(st.text(max_size=60))
def test_plain_text_has_no_control_characters(text: str) -> None:
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in wording.plain(text))


def test_lines_may_be_kept() -> None:
    assert wording.plain("a\nb\x1b", keep_lines=True) == "a\nb\\x1b"


@given(st.text(max_size=40), st.integers(1, 30))
def test_clipped_text_fits(text: str, columns: int) -> None:
    assert wording.width(wording.clip(wording.plain(text), columns)) <= columns


def test_wide_characters_count_twice() -> None:
    assert wording.width("日本") == 4
    assert wording.pad("日本", 6) == "日本  "
    assert wording.clip("日本語", 5) == "日本…"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "40 ms"), (12.3, "12 s"), (185, "3:05"), (7800, "2:10:00"), (3 * 86400, "3 d"), (-1, "0.0 s")],
)
def test_durations(seconds: float, words: str) -> None:
    assert wording.duration(seconds) == words


@pytest.mark.parametrize(("seconds", "words"), [(3, "3 s"), (90, "2 min"), (3600, "1 h"), (2e5, "2 d"), (-5, "0 s")])
def test_ages(seconds: float, words: str) -> None:
    assert wording.ago(seconds) == words


@pytest.mark.parametrize(
    ("size", "words"), [(12, "12 B"), (2048, "2.0 KiB"), (39.8 * 2**30, "39.8 GiB"), (2**41, "2.0 TiB")]
)
def test_memory(size: float, words: str) -> None:
    assert wording.memory(size) == words


def test_times_are_iso_in_utc() -> None:
    assert wording.iso(0) == "1970-01-01T00:00:00.000+00:00"
    assert wording.iso(None) is None
