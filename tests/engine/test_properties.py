"""What holds for every workflow under every schedule: crashes, duplicates, delays, people who change their minds."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagkit.engine.state import Dispatch, WorkflowState
from dagkit.model.states import FailureKind, RunStatus, TaskState
from engine.simulation import OUTPUTS, Op, Simulation, read_output, specs, without_generation

MOST_OPS = 25
KINDS = [None, FailureKind.USER, FailureKind.PREEMPTED, FailureKind.MEMORY, FailureKind.CONFIG, FailureKind.LOST]
KINDS += [FailureKind.CANCELLED]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(spec=specs(), data=st.data())
def test_any_run_keeps_its_promises_and_ends(spec, data) -> None:
    has_changed_mind = False

    def may_run(item: Dispatch) -> None:
        assert run.state.state_of(item.index) is TaskState.RUNNING
        assert not item.name.startswith("__")
        assert has_changed_mind or run.policy_holds(item.name)
        assert has_changed_mind or run.barriers_are_open(item.name)
        assert has_changed_mind or run.condition_holds(item.name)

    run = Simulation(spec, may_run)
    for _ in range(data.draw(st.integers(0, MOST_OPS), label="ops")):
        op = data.draw(next_op(run), label="op")
        has_changed_mind |= op[0] in ("retry", "rerun", "keep")
        run.run(op)
        run.check_counters()
        check_limits(run)
        if op[0] == "step" and not op[3]:
            check_what_was_saved(run)

    finish(run)

    assert run.state.is_over
    assert run.state.status.is_over
    assert all(times == 1 for times in run.counted.values())
    document = run.state.document()
    for reloads in (False, True):
        assert run.replayed(reloads).state.document() == document


def next_op(run: Simulation) -> st.SearchStrategy[Op]:
    """Something that may happen to the run as it stands."""
    names = [name for name in run.state.names if not name.startswith("__")]
    few = st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)
    step = st.tuples(
        st.just("step"),
        st.sampled_from([None, None, 0, 1, 2]),
        st.sampled_from([0, 0, 0, 1]),
        st.sampled_from([False, False, True]),
    )
    ops: list[st.SearchStrategy[Op]] = [step, step, step, st.tuples(st.just("advance"), st.sampled_from([1.5, 10, 40]))]
    ops += [st.tuples(st.just("deliver"), deliveries(run))] * 4
    rare: list[st.SearchStrategy[Op]] = [
        st.just(("cancel",)),
        st.tuples(st.just("retry"), st.none() | few),
        st.tuples(st.just("rerun"), few),
        st.tuples(
            st.just("keep"),
            st.dictionaries(st.integers(0, len(run.state.names) - 1), st.sampled_from(OUTPUTS), max_size=2),
        ),
    ]
    return st.integers(0, 9).flatmap(lambda n: st.one_of(rare) if n == 9 else st.one_of(ops))


@st.composite
def deliveries(draw, run: Simulation):
    """Some of what is in flight, in any order, with repetitions and with answers from long ago."""
    flight = list(run.in_flight.values())
    chosen = draw(st.lists(st.sampled_from(flight), max_size=4, unique_by=lambda item: item.name)) if flight else []
    completions = []
    for item in chosen:
        success, output = draw(st.sampled_from([True, True, False])), draw(st.sampled_from(OUTPUTS))
        completion = run.completion(item, success, output, draw(st.sampled_from(KINDS)))
        completions += [completion] * draw(st.integers(1, 2))
    if run.old:
        completions += draw(st.lists(st.sampled_from(run.old), max_size=2))
    return completions


def check_limits(run: Simulation) -> None:
    spec, state = run.spec, run.state
    running = [spec.tasks[i] for i in range(len(state.names)) if state.state_of(i) is TaskState.RUNNING]
    if spec.max_parallelism is not None:
        assert len(running) <= spec.max_parallelism
    for template, limit in spec.concurrency.items():
        assert sum((task.template or task.name) == template for task in running) <= limit


def check_what_was_saved(run: Simulation) -> None:
    """Applying changes, following them in a mirror, writing it all and reading it back come to the same document."""
    document = run.state.document()
    assert run.saved == document
    assert run.mirrored() == document
    assert WorkflowState.load(run.spec, document, read_output=read_output).document() == document


def finish(run: Simulation) -> None:
    """Let everything happen that is due, with success, until nothing is left; fails if that takes for ever."""
    for _ in range(400):
        if run.state.is_over:
            break
        run.run(("step", None, 0, False))
        due = run.state.next_due()
        flight = list(run.in_flight.values())
        if flight:
            run.run(("deliver", [run.completion(item, True, "true", None) for item in flight]))
        elif due is not None:
            run.run(("advance", max(0.0, due - run.now)))
    run.run(("step", None, 0, False))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(spec=specs(), data=st.data())
def test_a_cancelled_run_starts_nothing_more_and_ends_cancelled(spec, data) -> None:
    run = Simulation(spec)
    for _ in range(data.draw(st.integers(0, 6))):
        run.run(("step", 2, 0, False))
        run.run(("deliver", data.draw(deliveries(run))))
    was_over = run.state.is_over
    status = run.state.status

    run.run(("cancel",))
    sent = len(run.in_flight)
    finish(run)

    assert run.state.status is (status if was_over else RunStatus.CANCELLED)
    assert len(run.in_flight) <= sent


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(spec=specs(), data=st.data())
def test_completions_without_a_generation_are_matched_by_their_attempt(spec, data) -> None:
    run = Simulation(spec)
    run.run(("step", None, 0, False))
    plain = [without_generation(completion) for completion in data.draw(deliveries(run))]

    run.run(("deliver", plain))

    assert len(run.counted) == len({completion.task for completion in plain})
    finish(run)
    assert run.state.is_over
