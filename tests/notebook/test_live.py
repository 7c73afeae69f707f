"""The live view: what it publishes, how often, how much, and when its thread goes."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator

import pytest

from dagkit.engine.state import WorkflowState
from dagkit.errors import BackendError
from dagkit.model.messages import Completion
from dagkit.notebook.live import LiveView
from dagkit.notebook.selection import Selection
from dagkit.viewing import RunViewer
from services.processes import wait_until
from watched_runs import CountingComm, stored

DONE = {"state": "completed", "attempt_no": 1, "usage": {"wall_s": 2.0, "peak_rss_bytes": 2**30}}
FAILED = {"state": "failed", "attempt_no": 1, "error": "ValueError: <b>no</b>\nTraceback", "kind": "user"}


@pytest.fixture
def view() -> Iterator:
    """Makes views; they are closed at the end."""
    made = []

    def make(run):
        comm = CountingComm()
        live = LiveView(run, comm)
        made.append(live)
        return live, comm

    yield make
    for live in made:
        live.close()


def test_it_tells_the_head_the_groups_and_a_page(view):
    live, comm = view(stored(2, {"prepare": DONE, "train-1": FAILED}))

    live.start()
    state = comm.wait_for(lambda s: "page" in s)

    assert (state["head"]["ended"], state["head"]["total"], state["head"]["driver"]) == (2, 4, "driven by nobody")
    assert state["head"]["failures"][0][0] == "train-1"
    assert state["groups"][0] == [[1, 0, 0, 0, 0, 0, 0, 0], "2.0 s · 1.0 GiB"]
    assert [row[0] for row in state["page"]["rows"]] == ["train-1", "prepare", "train-0", "compare"]


def test_of_a_run_that_nobody_drives_it_says_how_it_goes_on(view):
    going, over = view(stored()), view(stored(status="failed"))
    for live, _ in (going, over):
        live.start()

    assert "dagkit.attach('run')" in going[1].wait_for(lambda s: "head" in s)["head"]["hint"]
    assert over[1].wait_for(lambda s: "head" in s)["head"]["hint"] == ""


def test_a_box_selects_its_tasks_and_a_task_brings_its_error_and_log(view):
    run = stored(2, {"train-1": FAILED})
    run.store.append_log("run", "train-1", "0.1", 0, b"epoch 1\n")
    live, comm = view(run)

    live.ask({"ask": "page", "group": "train-0", "n": 1})
    live.ask({"ask": "task", "name": "train-1", "n": 2})
    state = comm.wait_for(lambda s: s.get("answered") == 2 and "log" in s)

    assert [row[0] for row in state["page"]["rows"]] == ["train-1", "train-0"]
    assert state["task"]["error"] == FAILED["error"]
    assert state["log"]["text"] == "epoch 1\n"
    run.store.append_log("run", "train-1", "0.1", 8, b"epoch 2\n")
    comm.wait_for(lambda s: s["log"]["text"] == "epoch 1\nepoch 2\n")


def test_usage_and_events_are_published_while_a_front_end_has_them_open(view):
    live, comm = view(stored(2, {"prepare": DONE, "train-1": {**FAILED, "completed_at": 5.0}}))
    live.ask({"ask": "tab", "name": "usage", "view": "a"})
    live.ask({"ask": "tab", "name": "events", "view": "b"})

    state = comm.wait_for(lambda s: "usage" in s and "events" in s)

    assert state["usage"]["rows"] == [["prepare", 1, 1, "2.0 s", "", "1.0 GiB", "", "", ""]]
    failure = next(row for row in state["events"]["rows"] if row[1] == "failed")
    assert failure == [5.0, "failed", "train-1", "train-1", "ValueError: <b>no</b>"]


def test_events_are_not_read_when_nobody_looks_at_them():
    selection = Selection(RunViewer(stored(3)))
    selection.choose_tab({"name": "events", "view": "a"})
    assert "events" in selection.refreshed(True)

    selection.choose_tab({"name": "tasks", "view": "b"})
    selection.forget("a")

    assert "events" not in selection.refreshed(True)


def test_of_a_task_its_attempts_are_told_with_what_they_asked_for_and_what_would_help(view):
    past = [{"attempt": 1, "kind": "memory", "wall_s": 3.0, "peak_rss_bytes": 2**30, "host": "a17"}]
    entry = {**FAILED, "kind": "memory", "attempt_no": 2, "past": past, "resources": {"memory": "40G"}}
    live, comm = view(stored(2, {"train-1": entry}))

    live.ask({"ask": "task", "name": "train-1"})
    task = comm.wait_for(lambda s: s.get("task"))["task"]

    assert task["attempts"] == [
        ["1", "failed (memory)", "3.0 s", "1.0 GiB", "", "a17"],
        ["2", "failed (memory)", "", "", "memory 40G", "default"],
    ]
    assert task["history"] == ["attempt 1 failed (memory): memory → 40G"]
    assert "resource_scales" in task["advice"]
    assert "asked for memory 40G" in task["facts"]


def test_the_log_of_an_earlier_attempt_is_read_if_it_is_asked_for(view):
    past = [{"attempt": 1, "kind": "user", "wall_s": 3.0}]
    run = stored(2, {"train-1": {**FAILED, "attempt_no": 2, "past": past}})
    run.store.append_log("run", "train-1", "0.1", 0, b"first try\n")
    run.store.append_log("run", "train-1", "0.2", 0, b"second try\n")
    live, comm = view(run)

    live.ask({"ask": "task", "name": "train-1"})
    comm.wait_for(lambda s: s.get("log", {}).get("text") == "second try\n" and s["log"]["attempt"] == 2)
    live.ask({"ask": "task", "name": "train-1", "attempt": 1})

    comm.wait_for(lambda s: s["log"]["text"] == "first try\n" and s["log"]["attempt"] == 1)


def test_tasks_are_shown_in_order_for_who_asks_for_that(view):
    live, comm = view(stored(2, {"train-1": FAILED}))

    live.ask({"ask": "page", "calm": True, "n": 1})
    state = comm.wait_for(lambda s: s.get("answered") == 1)

    assert [row[0] for row in state["page"]["rows"]] == ["prepare", "train-0", "train-1", "compare"]
    assert state["chosen"]["calm"]


def test_rows_of_a_store_that_reads_slowly_are_read_within_a_tenth_of_the_time():
    """In Azure the state of a run is one blob: to read a row of it is to read all of it."""
    run, now = stored(2), [0.0]
    selection = Selection(RunViewer(run, clock=lambda: now[0]), lambda: now[0])
    entries, reads = run.store.task_entries, []

    def slowly(workflow_id, names=None):
        reads.append(now[0])
        now[0] += 1.0
        return entries(workflow_id, names)

    run.store.task_entries = slowly
    while now[0] < 100:
        selection.refreshed(True)
        now[0] += 0.1

    assert 5 <= len(reads) <= 11
    assert "page" in selection.refreshed(True) or selection.choose({"group": "train-0"})
    selection.choose({"group": "train-0"})
    assert selection.refreshed(False)["page"]["total"] == 2  # who asks is answered at once


def test_a_filtered_table_catches_up_though_nothing_more_happens(view):
    run = stored(50)
    live, comm = view(run)
    live.ask({"ask": "page", "states": ["completed"]})
    comm.wait_for(lambda s: "page" in s)

    finish_all(run, True)

    comm.wait_for(lambda s: s["page"]["total"] == 52)


def test_a_question_that_makes_no_sense_is_answered_and_the_view_goes_on(view):
    live, comm = view(stored())

    live.ask({"ask": "task", "name": "nobody", "n": 1})
    live.ask({"ask": "page", "states": ["unheard-of"], "n": 2})
    live.ask({"ask": "do", "action": "explode", "n": 3})
    state = comm.wait_for(lambda s: s.get("answered") == 3)

    assert "explode" in state["notice"]["text"]
    assert state["notice"]["is_bad"]
    live.ask({"ask": "here", "n": 4})
    comm.wait_for(lambda s: s["answered"] == 4)


def test_actions_say_what_they_will_do_before_they_do_it(view):
    run = stored(
        2, {"prepare": DONE, "train-0": DONE, "train-1": FAILED, "compare": {"state": "upstream_failed"}}, "failed"
    )
    live, comm = view(run)

    live.ask({"ask": "effect", "action": "rerun", "group": "train-0"})
    rerun = comm.wait_for(lambda s: s.get("confirm", {}).get("action") == "rerun")["confirm"]
    live.ask({"ask": "effect", "action": "retry"})
    retry = comm.wait_for(lambda s: s["confirm"].get("action") == "retry")["confirm"]

    assert rerun["text"] == (
        "Run 2 tasks and the 1 that depends on them again? 1 task of these is completed and will be done anew."
    )
    assert retry["text"] == "Retry 1 task that failed or was cancelled and the 1 that depends on them?"
    assert run.task("train-1").state == "failed"
    live.ask({"ask": "do", "action": "retry"})
    comm.wait_for(lambda s: not s["confirm"] and "2 tasks will run again" in s.get("notice", {}).get("text", ""))
    assert run.task("train-1").state == "ready"


def test_a_result_is_shown_if_it_is_small_enough_and_said_if_it_is_not(view):
    run = stored(2, {"prepare": {**DONE, "output_ref": '{"mae": 0.1}'}, "train-0": DONE, "train-1": FAILED})
    large = run.store.put_output("run", "train-0.json", b'"' + b"x" * 5_000_000 + b'"')
    run.store._runs["run"].tasks["train-0"] = json.dumps({**DONE, "output_ref": large})
    live, comm = view(run)

    shown = {}
    for name in ("prepare", "train-0", "train-1"):
        live.ask({"ask": "result", "name": name})
        shown[name] = comm.wait_for(lambda s, name=name: s.get("result", {}).get("name") == name)["result"]["body"]

    assert shown["prepare"] == "{'mae': 0.1}"
    assert shown["train-0"] == "the result is 5 MB, too large to show here: run['train-0'] has it"
    assert shown["train-1"] == "no result: it is failed"


def test_cancel_is_confirmed_in_numbers_and_done(view):
    run = stored(2, {"prepare": DONE, "train-0": {"state": "ready"}})
    live, comm = view(run)

    live.ask({"ask": "effect", "action": "cancel"})
    said = comm.wait_for(lambda s: s.get("confirm"))["confirm"]["text"]
    live.ask({"ask": "do", "action": "cancel"})

    assert said == "Stop 0 tasks that are running and give up 3 that have not begun? The 1 completed stay."
    comm.wait_for(lambda s: s["head"]["status"] == "cancelled")


def test_a_store_that_fails_is_said_and_the_view_recovers(view):
    run = stored()
    live, comm = view(run)
    live.start()
    comm.wait_for(lambda s: "head" in s)
    row = run.row
    run.row = lambda: (_ for _ in ()).throw(BackendError("the store is away"))

    live.ask({"ask": "here"})
    comm.wait_for(lambda s: s["head"]["problem"] == "the store is away")
    run.row = row

    live.ask({"ask": "here"})
    comm.wait_for(lambda s: s["head"]["problem"] == "")


def test_nothing_is_sent_while_nothing_changes(view):
    live, comm = view(stored())
    live.start()
    comm.wait_for(lambda s: "page" in s)
    sent = len(comm.messages)

    for _ in range(3):
        live.settle()

    assert len(comm.messages) == sent


def test_the_thread_goes_with_the_last_watcher_and_comes_back_with_a_question(view):
    live, comm = view(stored())
    live.ask({"ask": "here", "view": "a"})
    live.ask({"ask": "here", "view": "b"})
    live.ask({"ask": "gone", "view": "a"})
    comm.wait_for(lambda s: "page" in s)
    assert live.is_looking

    live.ask({"ask": "gone", "view": "b"})
    wait_until(lambda: not live.is_looking, "the thread ends")

    live.ask({"ask": "here", "view": "c", "n": 7})
    comm.wait_for(lambda s: s.get("answered") == 7)


def test_a_cell_that_waits_keeps_a_view_going_that_nobody_can_be_heard_from(view):
    live, _ = view(stored())
    with live.held():
        live.ask({"ask": "gone"})
        live.settle()
        live.settle()
        assert live.is_looking


def test_closing_ends_the_thread(view):
    live, comm = view(stored())
    live.start()
    comm.wait_for(lambda s: "page" in s)

    live.close()

    assert not live.is_looking
    assert not [one for one in threading.enumerate() if one.name == "dagkit-view"]
    live.ask({"ask": "here"})
    assert not live.is_looking


def test_two_views_of_a_run_do_not_share_what_is_chosen(view):
    run = stored(2)
    (first, one), (second, two) = view(run), view(run)

    first.ask({"ask": "page", "group": "train-0"})
    second.ask({"ask": "page", "text": "comp"})

    one.wait_for(lambda s: s.get("page", {}).get("total") == 2)
    two.wait_for(lambda s: s.get("page", {}).get("total") == 1)


@pytest.mark.parametrize(("tasks", "is_success"), [(100_000, True), (20_000, False)], ids=["all well", "all wrong"])
def test_a_hundred_thousand_events_are_few_small_messages(view, tasks, is_success):
    """An output flood freezes a browser and trips the limits of a Jupyter server: 1,000 messages, 1 MB a second."""
    run = stored(tasks)
    live, comm = view(run)
    live.ask({"ask": "page", "limit": 10_000})
    live.ask({"ask": "task", "name": "train-5"})
    live.ask({"ask": "tab", "name": "usage", "view": "a"})
    live.ask({"ask": "tab", "name": "events", "view": "b"})
    comm.wait_for(lambda s: "log" in s and "events" in s, 30.0)
    comm.messages.clear()

    saved = finish_all(run, is_success)
    comm.wait_for(lambda s: s["head"]["ended"] == saved and s["head"]["over"], 30.0)

    assert comm.busiest_second() <= 10
    assert max(size for _, size in comm.messages) < 60_000
    assert comm.busiest_bytes() < 500_000


def test_it_looks_less_often_while_nothing_changes(view):
    """Ten looks a second at a run that waits for a day in a scheduler's queue would be a load on its store."""
    run, looked = stored(), []
    row = run.row
    run.row = lambda: looked.append(time.monotonic()) or row()
    live, _ = view(run)

    live.start()
    wait_until(lambda: len(looked) >= 9, "nine looks")

    pauses = [after - before for before, after in itertools.pairwise(looked)]
    assert pauses[-1] > 5 * min(pauses)
    assert pauses[-1] > 0.5


def finish_all(run, is_success: bool) -> int:
    """Every task ends, saved a thousand at a time; returns how many have ended."""
    store, spec = run.store, run.spec
    stored_run = store.load("run")
    state, etag = WorkflowState.load(spec, stored_run.state), stored_run.etag
    while not state.is_over:
        for dispatch in state.dispatch(1.0, lambda queue: 1_000):
            error = None if is_success or dispatch.name == "prepare" else f"ValueError: {'no ' * 200}"
            done = Completion("run", dispatch.name, error is None, error=error, attempt=dispatch.attempt)
            done.usage = {"started_at": 0.5, "wall_s": 0.4, "peak_rss_bytes": 2**25}
            state.apply(done, 1.0)
        etag = store.save("run", state.take_changes(), etag)
    return state.counts.ended
