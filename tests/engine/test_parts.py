"""The small parts of the engine by themselves: moves, needs, attempts left, alarms, times, ready tasks, the mirror."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagkit.engine.alarms import Alarms
from dagkit.engine.mirror import Mirror
from dagkit.engine.moves import CODES, LEGAL, MOVES, READY, STATES, WIDTH
from dagkit.engine.policy import SETTLED, is_impossible, is_satisfied, need_of
from dagkit.engine.ready import UNLIMITED, Lane, ReadyTasks
from dagkit.engine.retry import delay_before_next, has_attempts_left, is_free, retries_remaining
from dagkit.engine.shape import Shape
from dagkit.engine.table import TaskTable
from dagkit.engine.times import from_text, to_text
from dagkit.errors import CorruptState
from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import TERMINAL, FailureKind, TaskState

# --- moves


def test_codes_say_the_same_as_the_table_of_moves() -> None:
    for before in STATES:
        allowed = {after for after in STATES if LEGAL[CODES[before.value] * WIDTH + CODES[after.value]]}
        assert allowed == MOVES[before]


def test_terminal_states_have_the_last_codes_and_only_lead_back_to_pending() -> None:
    assert set(STATES[3:]) == TERMINAL
    assert all(MOVES[state] == {TaskState.PENDING} for state in TERMINAL)


def test_a_move_that_is_not_in_the_table_is_refused() -> None:
    table = TaskTable(Shape.of(WorkflowSpec.from_dict({"name": "w", "tasks": [{"name": "a"}]})))

    with pytest.raises(RuntimeError, match="a cannot go from pending to running"):
        table.move(0, CODES["running"])


# --- policies


@pytest.mark.parametrize(
    ("policy", "parents", "need"),
    [
        ("all", 3, 3),
        ("any", 3, 1),
        (2, 3, 2),
        ("all_settled", 3, SETTLED),
        ("any", 0, 0),  # a root may carry any policy and runs at once
        ("all_settled", 0, 0),
    ],
)
def test_need_of_a_policy(policy: str | int, parents: int, need: int) -> None:
    assert need_of(policy, parents) == need


@given(st.integers(1, 6), st.data())
def test_a_policy_is_never_satisfied_and_impossible_and_always_one_of_them_in_the_end(
    parents: int, data: st.DataObject
) -> None:
    policy = data.draw(st.sampled_from(["all", "any", "all_settled"]) | st.integers(1, parents))
    satisfied = data.draw(st.integers(0, parents))
    failed = data.draw(st.integers(0, parents - satisfied))
    need = need_of(policy, parents)

    runs = is_satisfied(need, parents, satisfied, failed)
    never = not runs and is_impossible(need, parents, satisfied, failed)

    assert not (runs and satisfied == 0)
    if satisfied + failed == parents:
        assert runs or never


# --- attempts


@pytest.mark.parametrize(
    ("kind", "attempt", "uncharged", "num_retries", "expected"),
    [
        (FailureKind.USER, 1, 0, 0, False),
        (FailureKind.USER, 1, 0, 1, True),
        (FailureKind.USER, 2, 0, 1, False),
        (None, 2, 0, 1, False),  # a worker that says no kind is charged
        (FailureKind.PREEMPTED, 1, 1, 0, True),  # this one was free
        (FailureKind.PREEMPTED, 6, 5, 0, False),  # beyond the bound it is charged
        (FailureKind.CONFIG, 1, 0, 5, False),
        (FailureKind.TIMEOUT, 1, 0, 1, True),
    ],
)
def test_attempts_left(
    kind: FailureKind | None, attempt: int, uncharged: int, num_retries: int, expected: bool
) -> None:
    assert has_attempts_left(kind, attempt, uncharged, num_retries) is expected


@pytest.mark.parametrize("kind", list(FailureKind))
def test_only_the_machinery_s_failures_are_free_and_only_up_to_the_bound(kind: FailureKind) -> None:
    is_infrastructure = kind in (FailureKind.PREEMPTED, FailureKind.NODE, FailureKind.LOST)

    assert is_free(kind, 4, bound=5) is is_infrastructure
    assert not is_free(kind, 5, bound=5)


def test_delays_are_one_per_retry_and_the_last_repeats() -> None:
    assert [delay_before_next(attempt, (1, 5)) for attempt in (1, 2, 3, 9)] == [1, 5, 5, 5]
    assert delay_before_next(1, ()) == 0


@pytest.mark.parametrize(
    ("state", "attempt", "uncharged", "remaining"),
    [
        (TaskState.PENDING, 0, 0, 2),
        (TaskState.RUNNING, 1, 0, 2),
        (TaskState.READY, 1, 0, 1),
        (TaskState.RUNNING, 2, 0, 1),
        (TaskState.RUNNING, 2, 1, 2),  # the first was preempted
        (TaskState.FAILED, 3, 0, 0),
        (TaskState.COMPLETED, 2, 0, 1),
    ],
)
def test_retries_remaining(state: TaskState, attempt: int, uncharged: int, remaining: int) -> None:
    assert retries_remaining(2, state, attempt, uncharged) == remaining


# --- times


@given(st.floats(0, 4e9))
def test_times_survive_being_written_down(at: float) -> None:
    text = to_text(at)

    assert abs(from_text(text) - at) < 2e-6
    assert to_text(from_text(text)) == text


def test_times_are_iso_8601_with_an_offset() -> None:
    assert to_text(1_777_939_200.0) == "2026-05-05T00:00:00+00:00"
    assert to_text(1_777_939_200.25) == "2026-05-05T00:00:00.250000+00:00"
    assert to_text(0.9999999) == "1970-01-01T00:00:01+00:00"


def test_times_of_other_writers_are_read() -> None:
    expected = from_text("2026-05-05T00:00:00+00:00")

    assert from_text("2026-05-05T00:00:00Z") == expected
    assert from_text("2026-05-05T00:00:00") == expected
    assert from_text("2026-05-05T02:00:00+02:00") == expected


@pytest.mark.parametrize("junk", ["yesterday", "", 17, None])
def test_what_is_no_time_is_corrupt(junk: object) -> None:
    with pytest.raises(CorruptState, match="point in time"):
        from_text(junk)


# --- alarms


def test_an_alarm_rings_once_when_its_time_has_come() -> None:
    alarms = Alarms()
    alarms.set(1, 20.0)
    alarms.set(2, 10.0)
    alarms.set(3, 30.0)

    assert alarms.next() == 10.0
    assert alarms.due(20.0) == [2, 1]
    assert alarms.due(20.0) == []
    assert alarms.next() == 30.0


def test_a_cleared_or_moved_alarm_does_not_ring_at_its_old_time() -> None:
    alarms = Alarms()
    alarms.set(1, 10.0)
    alarms.set(2, 10.0)

    alarms.clear(1)
    alarms.set(2, 15.0)

    assert alarms.next() == 15.0
    assert alarms.due(12.0) == []
    assert 1 not in alarms
    assert 2 in alarms


def test_alarms_that_were_cleared_do_not_pile_up() -> None:
    alarms = Alarms()
    for task in range(10_000):
        alarms.set(task, 1000.0)
        alarms.clear(task)

    assert len(alarms) == 0
    assert len(alarms._heap) < 200
    assert alarms.next() is None


# --- ready tasks


def ready_tasks(
    queues: str, templates: dict[int, str] | None = None, priorities: list[int] | None = None
) -> ReadyTasks:
    """One task per letter of `queues`, all ready."""
    keys = [(queue, (templates or {}).get(task)) for task, queue in enumerate(queues)]
    lanes = list(dict.fromkeys(keys))
    tasks = ReadyTasks([Lane(*lane) for lane in lanes], [lanes.index(key) for key in keys], priorities)
    for task in range(len(queues)):
        tasks.add(task)
    return tasks


def take(tasks: ReadyTasks, n: int, limit: int = UNLIMITED, room: dict[str, int] | None = None, free: int = 99) -> list:
    answers = {} if room is None else room
    return tasks.take(bytearray([READY] * n), limit, lambda queue: answers.get(queue, UNLIMITED), lambda name: free)


def test_queues_take_turns_by_the_order_of_their_tasks() -> None:
    assert take(ready_tasks("abab"), 4, limit=3) == [0, 1, 2]


def test_a_full_queue_does_not_hold_up_another() -> None:
    tasks = ready_tasks("aabb")

    assert take(tasks, 4, room={"a": 1}) == [0, 2, 3]
    assert take(tasks, 4, room={"a": 0}) == []
    assert take(tasks, 4) == [1]


def test_higher_priority_goes_first_then_definition_order() -> None:
    assert take(ready_tasks("aab", priorities=[0, 5, 5]), 3) == [1, 2, 0]


def test_a_limited_template_is_limited_over_all_queues() -> None:
    assert take(ready_tasks("aabb", {0: "T", 2: "T", 3: "T"}), 4, free=2) == [0, 1, 2]


def test_a_withdrawn_task_is_passed_over_until_it_is_added_again() -> None:
    tasks = ready_tasks("aaa")
    tasks.withdraw(0)
    tasks.withdraw(1)
    tasks.add(1)

    assert take(tasks, 3) == [1, 2]
    tasks.add(0)
    assert take(tasks, 3) == [0]


def test_a_task_added_twice_is_taken_once() -> None:
    tasks = ready_tasks("aa")
    tasks.add(0)

    assert take(tasks, 2) == [0, 1]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-2, 2)), min_size=1, max_size=30), st.integers(1, 7))
def test_everything_is_taken_once_in_rank_order(tasks: list[tuple[str, int]], limit: int) -> None:
    priorities = [priority for _, priority in tasks]
    ready = ready_tasks("".join(queue for queue, _ in tasks), priorities=priorities)
    taken: list[int] = []
    while chosen := take(ready, len(tasks), limit):
        taken += chosen

    ranks = [(-priorities[task], task) for task in taken]

    assert sorted(taken) == list(range(len(tasks)))
    assert all(before < after for before, after in pairwise(ranks))


# --- the mirror


def test_a_mirror_shows_the_document_as_of_a_taking_though_more_was_taken_since() -> None:
    mirror = Mirror({"a": {"state": "ready"}})
    first = mirror.add([(0, "a", {"state": "running"}), (1, "b", {"state": "ready"})])
    second = mirror.add([(0, "a", {}), (1, "b", {"state": "running"})])

    assert mirror.at(first) == {"a": {"state": "running"}, "b": {"state": "ready"}}
    assert mirror.at(second) == {"b": {"state": "running"}}


def test_a_mirror_that_nobody_looks_into_forgets() -> None:
    mirror = Mirror({})
    last = [mirror.add([(0, "a", {"attempt_no": n})]) for n in range(100)][-1]

    assert mirror.at(last) is None
    assert not mirror._log
