"""Bars and foreign text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dagkit.model.records import Counts
from dagkit.model.states import SEGMENT_ORDER, RunStatus, TaskState
from dagkit.notebook.palette import GLYPHS
from dagkit_tui.words import bar, own, state_words, without_marks

some = st.integers(0, 3) | st.integers(0, 200_000)
counts = st.builds(Counts, **{state.value: some for state in TaskState})


@given(counts, st.integers(0, 120))
def test_a_bar_is_as_wide_as_it_should_be_and_shows_every_state_there_is_room_for(found: Counts, columns: int) -> None:
    text = bar(found, columns).plain

    assert len(text) == (columns if found.total else 0)
    present = [state for state in SEGMENT_ORDER if found.of(state)]
    if len(present) <= columns:
        for state in present:
            assert ("█" if state is TaskState.COMPLETED else GLYPHS[state]) in text


def test_half_done_is_half_a_bar() -> None:
    assert bar(Counts(completed=50, running=50), 10).plain == "█████◐◐◐◐◐"
    assert bar(Counts(completed=999, failed=1), 10).plain == "█████████✗"
    assert bar(Counts(pending=3), 4).plain == "····"


def test_a_status_that_nobody_knows_is_shown_as_it_is() -> None:
    assert state_words("[red]odd").plain == "[red]odd"
    assert state_words(RunStatus.PENDING).plain == "· pending"


def test_text_of_users_stays_on_its_line_and_is_not_obeyed() -> None:
    assert own("a\nb\x1b[2J[b]").plain == "a b\\x1b[2J[b]"


def test_lines_of_marks_are_left_out_of_errors_but_not_their_first_line() -> None:
    assert without_marks("^^^\n  x = y\n      ^^^\n   ~~~^~~\nKeyError\n") == ["^^^", "  x = y", "KeyError"]
