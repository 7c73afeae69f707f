"""Every screen and key of the terminal app."""

from __future__ import annotations

import pytest

from dagkit.config import load_settings
from dagkit.model.states import TaskState
from dagkit.run import Run
from dagkit.stores.memory import MemoryStore
from tui.conftest import NOW, HeldStore, add_run, sweep, terminal

pytestmark = pytest.mark.asyncio


def lines_of(text: str, *words: str) -> list[int]:
    """Where the first line with each of the words is."""
    lines = text.split("\n")
    return [next(n for n, line in enumerate(lines) if word in line) for word in words]


def run_of(store: MemoryStore, run_id: str = "sweep-3f9c") -> Run:
    return Run(store, run_id, load_settings(store="memory:"))


# --- runs


async def test_runs_are_listed_trouble_first_with_what_is_the_matter(store) -> None:
    async with terminal(store) as screen:
        text = await screen.shows("sweep-3f9c", "prep-9", "MemoryError")

        places = lines_of(text, "▸ sweep-3f9c", "nightly-02", "calm-1", "prep-9")
        assert places == sorted(places)
        assert "2 running · 1 failed · 1 done" in text
        assert "✗ failed" in text
        assert "5/8" in text


async def test_the_run_under_the_cursor_is_looked_into(store) -> None:
    async with terminal(store) as screen:
        await screen.shows("sweep-3f9c", "nightly-02")
        screen.app.screen.query_one("#runs").select("sweep-3f9c")
        await screen.shows("train-1   MemoryError: batch of 8192 does not fit")
        screen.app.screen.query_one("#runs").select("calm-1")

        await screen.shows("prepare: 1 running", without="MemoryError")


async def test_a_search_narrows_the_list_while_it_is_typed_and_escape_ends_it(store) -> None:
    async with terminal(store) as screen:
        await screen.shows("sweep-3f9c", "nightly-02")
        await screen.press("slash")
        await screen.type("NIGHT")
        await screen.shows("nightly-02", "/NIGHT", without="calm-1")
        await screen.press("enter", "enter")
        await screen.shows("all tasks", "nightly-02")
        await screen.press("escape")
        await screen.shows("/NIGHT")
        await screen.press("escape")

        await screen.shows("calm-1", "sweep-3f9c")


async def test_runs_are_filtered_and_sorted_by_keys(store) -> None:
    async with terminal(store) as screen:
        await screen.shows("sweep-3f9c", "prep-9")
        await screen.press("f")
        await screen.shows("in trouble", "sweep-3f9c", without="calm-1")
        await screen.press("f")
        await screen.shows("under way", "calm-1", without="nightly-02")
        await screen.press("f")
        await screen.shows("over", "prep-9", without="calm-1")
        await screen.press("f", "s")
        text = await screen.shows("newest first", "prep-9", "calm-1")
        assert lines_of(text, "nightly-02")[0] < lines_of(text, "prep-9")[0]
        await screen.press("s")
        text = await screen.shows("by name")
        assert lines_of(text, "calm-1")[0] < lines_of(text, "nightly-02")[0] < lines_of(text, "prep-9")[0]


async def test_an_empty_store_says_how_to_begin() -> None:
    async with terminal(MemoryStore()) as screen:
        await screen.shows("no runs yet: dagkit run FILE starts one")


# --- a run


async def test_a_run_shows_its_groups_as_a_tree_and_trouble_above_the_other_tasks(store) -> None:
    async with terminal(store, "sweep-3f9c") as screen:
        text = await screen.shows("└─ train × 6", "train-5", "driven by nobody")

        assert lines_of(text, "train-1 ")[0] < lines_of(text, "train-0 ")[0]
        assert "5 of 8" in text
        assert "4/4" in text
        assert "✗ 2" in text


async def test_a_group_shows_its_tasks(store) -> None:
    async with terminal(store, "sweep-3f9c") as screen:
        await screen.shows("train-5")
        await screen.press("shift+tab", "down")
        await screen.shows("prepare · 1", without="train-5  ")
        await screen.press("down", "enter")

        await screen.shows("train × 6 · 6", "train-5")
        assert screen.app.focused.id == "tasks"


async def test_tasks_are_filtered_by_state_and_text(store) -> None:
    async with terminal(store, "sweep-3f9c") as screen:
        await screen.shows("train-5")
        await screen.press("f")
        await screen.shows("in trouble · 3", without="train-5  ")
        await screen.press("f")
        await screen.shows("running · 1", "train-3")
        for _ in range(5):
            await screen.press("f")
        await screen.shows("all tasks · 8")
        await screen.press("slash")
        await screen.type("8192")
        await screen.shows("/8192 · 1", "train-1")
        await screen.press("escape")

        await screen.shows("all tasks · 8")


async def test_text_of_users_is_shown_and_not_obeyed(store) -> None:
    async with terminal(store, "sweep-3f9c") as screen:
        await screen.shows("train-5")
        screen.app.screen.query_one("#tasks").select("train-2")

        text = await screen.shows("[/red] [bold]exit")
        assert "\\x1b[2J" in text


async def test_names_that_look_like_markup_or_are_wide_are_drawn_as_they_are() -> None:
    store = MemoryStore(clock=lambda: NOW)
    names = ["[red]x[/]", "日本語のタスク", "naïve 🚀", "\u202eevil"]
    from dagkit.model.spec import TaskSpec, WorkflowSpec

    spec = WorkflowSpec.trusted("[b]odd", [TaskSpec.trusted(name) for name in names])
    add_run(store, "odd", spec, {}, "running")
    async with terminal(store, "odd") as screen:
        text = await screen.shows("[b]odd", "[red]x[/]", "日本語", "\\u202eevil")

        assert "naïve" in text


async def test_a_task_opens_with_its_attempts_its_error_and_its_neighbours(store) -> None:
    async with terminal(store, "sweep-3f9c") as screen:
        await screen.shows("train-5")
        screen.app.screen.query_one("#tasks").select("train-1")
        await screen.press("enter")

        text = await screen.shows("4 of 4", "node-7", "memory 40G", "line 7, in train", "raise memory=")
        assert "3  failed (memory)  36 s  asked for memory 27G" in text
        assert "✓ completed         prepare" in text
        assert "⊘ upstream failed   compare" in text
        await screen.press("escape")
        await screen.shows("all tasks · 8")


async def test_a_log_is_followed_without_what_would_steer_a_terminal(store) -> None:
    written = b"epoch [red]1[/red]\n\x1b[31mred\x1b[0m\r\n10%\r90%\n"
    store.append_log("sweep-3f9c", "train-3", "0.1", 0, written)
    async with terminal(store, "sweep-3f9c") as screen:
        await screen.shows("train-5")
        screen.app.screen.query_one("#tasks").select("train-3")
        await screen.press("l")
        text = await screen.shows("epoch [red]1[/red]", "attempt 1 of 4", "following")
        assert "10%" not in text
        store.append_log("sweep-3f9c", "train-3", "0.1", len(written), b"more\n")
        await screen.shows("more", "90%")
        await screen.press("f")
        await screen.shows("standing still")
        await screen.press("G")
        await screen.shows("following", without="standing")
        await screen.press("escape")
        await screen.shows("all tasks · 8")


async def test_a_task_that_wrote_nothing_says_so(store) -> None:
    async with terminal(store, "sweep-3f9c") as screen:
        await screen.shows("train-5")
        screen.app.screen.query_one("#tasks").select("train-4")
        await screen.press("l")
        await screen.shows("not started", "nothing written yet")


# --- actions


async def test_a_cancel_says_what_it_does_and_does_it_only_after_a_yes(store) -> None:
    async with terminal(store, "sweep-3f9c") as screen:
        await screen.shows("train-5")
        await screen.press("c")
        await screen.shows("Cancel sweep (sweep-3f9c)? 3 tasks, 1 of them running, will be stopped or not started.")
        await screen.press("n")
        await screen.shows("train-5", without="Cancel sweep")
        assert not store.row("sweep-3f9c").cancel_requested
        await screen.press("c")
        await screen.shows("Cancel sweep")
        await screen.press("y")

        await screen.shows("cancellation requested", "⊖ cancelling")


async def test_enter_in_a_question_means_no(store) -> None:
    async with terminal(store, "sweep-3f9c") as screen:
        await screen.shows("train-5")
        await screen.press("c")
        await screen.shows("Cancel sweep")
        await screen.press("enter")
        await screen.shows("train-5", without="Cancel sweep")

        assert not store.row("sweep-3f9c").cancel_requested


async def test_the_mouse_says_yes(store) -> None:
    async with terminal(store, "sweep-3f9c") as screen:
        await screen.shows("train-5")
        await screen.press("c")
        await screen.shows("Cancel sweep")
        await screen.pilot.click("#yes")
        await screen.shows("cancellation requested")


async def test_a_retry_is_of_all_that_failed_or_of_one_task(store) -> None:
    async with terminal(store, "nightly-02") as screen:
        await screen.shows("train-1", "exit code 2")
        await screen.press("r")
        await screen.shows("Retry 1 failed task?")
        await screen.press("n")
        screen.app.screen.query_one("#tasks").select("train-1")
        await screen.press("enter", "r")
        await screen.shows("Retry 1 failed task?")
        await screen.press("y")

        await screen.shows("1 task eligible again")
        assert run_of(store, "nightly-02").task("train-1").state is TaskState.READY


async def test_what_has_not_failed_is_not_retried(store) -> None:
    async with terminal(store, "prep-9") as screen:
        await screen.shows("train-1")
        await screen.press("r")
        await screen.shows("nothing has failed in prep")


async def test_a_rerun_says_what_will_be_made_anew(store) -> None:
    async with terminal(store, "prep-9") as screen:
        await screen.shows("train-1")
        screen.app.screen.query_one("#tasks").select("train-1")
        await screen.press("R")
        await screen.shows("Rerun train-1 and the 1 task after it? 2 completed outputs will be made anew.")
        await screen.press("y")

        await screen.shows("2 tasks will run again")
        assert run_of(store, "prep-9").task("train-1").state is TaskState.READY


async def test_a_rerun_that_is_refused_says_why(store) -> None:
    async with terminal(store, "sweep-3f9c") as screen:
        await screen.shows("train-5")
        screen.app.screen.query_one("#tasks").select("prepare")
        await screen.press("R")
        await screen.shows("train-3 is running; wait for it or cancel the run first")


async def test_a_status_is_set_by_hand(store) -> None:
    async with terminal(store, "sweep-3f9c") as screen:
        await screen.shows("train-5")
        screen.app.screen.query_one("#tasks").select("train-1")
        await screen.press("x")
        await screen.shows("Take train-1 for", "completed  take it for done")
        await screen.press("enter")

        await screen.shows("1 task taken for completed")
        assert run_of(store).task("train-1").state is TaskState.COMPLETED


@pytest.mark.parametrize(("typed", "said", "most"), [("3", "at most 3 at a time", 3), ("0", "paused", 0)])
async def test_a_limit_is_changed(store, typed, said, most) -> None:
    async with terminal(store, "sweep-3f9c") as screen:
        await screen.shows("train-5")
        await screen.press("m")
        await screen.shows("How many tasks of sweep may run at a time?")
        await screen.type(typed)
        await screen.press("enter")

        await screen.shows(f"tasks of sweep: {said}")
        assert store.load("sweep-3f9c").state["limits"] == {"max_parallelism": most}


async def test_a_limit_of_a_group_is_that_of_its_template_and_words_are_no_number(store) -> None:
    async with terminal(store, "sweep-3f9c") as screen:
        await screen.shows("train-5")
        screen.app.screen.query_one("#groups").select("train-0")
        await screen.press("m")
        await screen.shows("How many train tasks of sweep")
        await screen.type("many")
        await screen.press("enter")
        await screen.shows("'many' is no number of tasks")


# --- what may go wrong


async def test_a_store_that_cannot_be_read_is_said_and_what_was_seen_stays(store) -> None:
    held = HeldStore(store)
    async with terminal(held) as screen:
        await screen.shows("sweep-3f9c")
        held.error = "the account is away"
        await screen.shows("✗ cannot refresh: the account is away", "sweep-3f9c")
        held.error = ""
        await screen.shows("sweep-3f9c", without="cannot refresh")


async def test_an_action_that_fails_is_one_notice(store) -> None:
    held = HeldStore(store)
    async with terminal(held, "sweep-3f9c") as screen:
        await screen.shows("train-5")
        held.error = "the account is away"
        await screen.press("c")
        await screen.shows("the account is away")


async def test_a_run_that_is_purged_while_it_is_shown_is_said(store) -> None:
    async with terminal(store, "prep-9") as screen:
        await screen.shows("train-1")
        store.delete("prep-9")
        await screen.shows("cannot refresh: no run 'prep-9'")


async def test_keys_are_handled_while_the_store_does_not_answer(store) -> None:
    held = HeldStore(store)
    held.gate.clear()
    async with terminal(held) as screen:
        await screen.until(lambda: held.waiting, "a read waits")
        await screen.press("question_mark")
        await screen.shows("Everywhere")
        await screen.press("escape")
        await screen.press("slash")
        await screen.type("sw")
        await screen.shows("/sw", "reading the store")
        assert held.waiting
        held.gate.set()
        await screen.shows("sweep-3f9c", without="calm-1")
        held.gate.clear()
        await screen.press("enter")
        await screen.press("enter")
        await screen.until(lambda: held.waiting, "a read of the run waits")
        await screen.press("escape")
        await screen.shows("driven by")
        held.gate.set()


async def test_of_100_000_tasks_only_those_in_sight_are_read() -> None:
    store = MemoryStore(clock=lambda: NOW)
    add_run(store, "large", sweep(100_000), {"prepare": {"state": "completed"}}, "running")
    held = HeldStore(store)
    async with terminal(held, "large") as screen:
        await screen.shows("100,002", "train-0 ", timeout_s=60)
        await screen.press("end")
        await screen.shows("compare", "train-99999", timeout_s=30)
        await screen.press("pageup", "pageup")
        await screen.shows("train-9994", without="train-99999")

        assert held.read_rows < 3_000


# --- looks


async def test_help_names_every_key_and_state(store) -> None:
    async with terminal(store, size=(100, 60)) as screen:
        await screen.press("question_mark")
        text = await screen.shows("Everywhere", "Runs", "A run", "States")
        for state in TaskState:
            assert state.words in text
        await screen.press("escape")
        await screen.shows("sweep-3f9c", without="Everywhere")


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (200, 50)])
@pytest.mark.parametrize("is_dark", [True, False])
async def test_screens_of_any_size_and_light_show_what_matters(store, size, is_dark) -> None:
    async with terminal(store, size=size, is_dark=is_dark) as screen:
        await screen.shows("sweep-3f9c", "◐ running", "8")
        screen.app.screen.query_one("#runs").select("sweep-3f9c")
        await screen.press("enter")
        text = await screen.shows("train-1", "✗ failed", "all tasks")
        assert all(len(line) <= size[0] for line in text.split("\n"))
        await screen.press("D")
        await screen.shows("✗ failed")
        assert screen.app.current_theme.dark is not is_dark


async def test_rows_keep_their_place_while_others_come(store) -> None:
    async with terminal(store) as screen:
        await screen.shows("sweep-3f9c", "prep-9")
        table = screen.app.screen.query_one("#runs")
        table.select("prep-9")
        add_run(store, "new-1", sweep(2, "new"), {"train-0": {"state": "failed", "error": "x"}}, "running")
        await screen.shows("new-1")

        assert table.current.workflow_id == "prep-9"


async def test_the_mouse_chooses_and_opens(store) -> None:
    async with terminal(store) as screen:
        text = await screen.shows("sweep-3f9c", "calm-1")
        (line,) = lines_of(text, "calm-1")
        await screen.pilot.click(offset=(5, line))
        await screen.until(lambda: screen.app.screen.query_one("#runs").current.workflow_id == "calm-1", "it is chosen")
        await screen.pilot.click(offset=(5, line), times=2)
        await screen.shows("all tasks · 5")
