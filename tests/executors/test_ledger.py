"""What was submitted to a scheduler, whatever happens to the process that submitted it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagkit.errors import ConfigError, LeaseLost, RunBusy
from dagkit.executors.ledger import Ledger, Phase
from dagkit.model.messages import AttemptKey

KEYS = [AttemptKey("run", f"t-{number}", 0, 1) for number in range(3)]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "slurm" / "ledger.db"


@pytest.fixture
def ledger(path: Path, clock: Clock) -> Iterator[Ledger]:
    opened = Ledger(path, clock=clock)
    opened.claim("me", 60.0)
    yield opened
    opened.close()


def test_an_intent_is_there_before_the_scheduler_is_called(ledger: Ledger, path: Path, clock: Clock) -> None:
    ledger.intend("fit.1", "cpu", KEYS, {"mode": "array"})

    (found,) = Ledger(path, clock=clock).unanswered()

    assert (found.name, found.profile, found.phase, found.job_id) == ("fit.1", "cpu", Phase.INTENDED, None)
    assert [member.key for member in found.members] == KEYS
    assert found.detail == {"mode": "array"}
    assert found.intended_at == 1000.0


def test_an_accepted_submission_is_open_until_all_its_members_have_ended(ledger: Ledger) -> None:
    one = ledger.intend("fit.1", "cpu", KEYS)
    ledger.accepted(one, "4711")
    assert ledger.unanswered() == []

    ledger.member_ended([(one, 0), (one, 2)])
    (found,) = ledger.open()
    assert (found.job_id, [member.position for member in found.open_members]) == ("4711", [1])

    ledger.member_ended([(one, 1)])
    assert ledger.open() == []
    assert one.phase is Phase.ENDED


def test_ends_may_be_told_twice(ledger: Ledger) -> None:
    one = ledger.intend("fit.1", "cpu", KEYS[:1])
    ledger.accepted(one, "1")
    ledger.member_ended([(one, 0)])
    ledger.member_ended([(one, 0)])
    assert ledger.open() == []


def test_a_refused_submission_carries_nothing(ledger: Ledger) -> None:
    one = ledger.intend("fit.1", "cpu", KEYS)

    ledger.refused(one, "AssocMaxSubmitJobLimit")

    assert ledger.open() == []
    assert ledger.carrying(KEYS) == {}
    assert (one.phase, one.open_members) == (Phase.REFUSED, [])


def test_what_a_listing_had_is_kept_with_its_time(ledger: Ledger, clock: Clock) -> None:
    one, two = ledger.intend("a.1", "cpu", KEYS[:1]), ledger.intend("b.2", "cpu", KEYS[1:])
    clock.now = 1030.0

    ledger.seen({one.id: "PENDING", two.id: "RUNNING"})

    assert [(s.scheduler_state, s.seen_at) for s in ledger.open()] == [("PENDING", 1030.0), ("RUNNING", 1030.0)]


def test_attempts_are_found_again_after_a_restart(ledger: Ledger, path: Path, clock: Clock) -> None:
    one = ledger.intend("fit.1", "cpu", KEYS)
    ledger.accepted(one, "4711")
    ledger.member_ended([(one, 0)])

    carried = Ledger(path, clock=clock).carrying([*KEYS, AttemptKey("run", "other", 0, 1)])

    assert {key.task: submission.job_id for key, submission in carried.items()} == {"t-1": "4711", "t-2": "4711"}


def test_a_name_is_used_once(ledger: Ledger) -> None:
    ledger.intend("fit.1", "cpu", KEYS[:1])
    with pytest.raises(Exception, match="UNIQUE"):
        ledger.intend("fit.1", "cpu", KEYS[1:])
    assert len(ledger.open()) == 1


def test_what_is_over_is_forgotten_after_a_while(ledger: Ledger, clock: Clock) -> None:
    old, open_ = ledger.intend("a.1", "cpu", KEYS[:1]), ledger.intend("b.2", "cpu", KEYS[1:2])
    ledger.accepted(old, "1")
    ledger.member_ended([(old, 0)])
    clock.now += 100.0
    young = ledger.intend("c.3", "cpu", KEYS[2:])
    ledger.refused(young, "no")

    assert ledger.forget(older_than_s=50.0) == 1
    assert ledger.forget(older_than_s=50.0) == 0
    assert [submission.name for submission in ledger.open()] == [open_.name]


# --- one driver


def test_a_second_driver_is_told_who_drives(ledger: Ledger, path: Path, clock: Clock) -> None:
    with pytest.raises(RunBusy, match="driven by me; wait"):
        Ledger(path, clock=clock).claim("another", 60.0)


def test_a_lease_that_ran_out_is_taken_over_and_the_deposed_driver_cannot_write(
    ledger: Ledger, path: Path, clock: Clock
) -> None:
    """A driver that slept through its lease would otherwise submit beside its successor."""
    one = ledger.intend("fit.1", "cpu", KEYS)
    clock.now += 61.0
    successor = Ledger(path, clock=clock)
    successor.claim("successor", 60.0)

    with pytest.raises(LeaseLost, match="successor drives it"):
        ledger.accepted(one, "4711")
    with pytest.raises(LeaseLost, match="successor drives it"):
        ledger.intend("fit.2", "cpu", KEYS)
    with pytest.raises(LeaseLost, match="driven by successor now"):
        ledger.claim("me", 60.0)

    assert [submission.phase for submission in successor.open()] == [Phase.INTENDED]
    successor.close()


def test_a_driver_that_is_certainly_gone_need_not_be_waited_for(ledger: Ledger, path: Path, clock: Clock) -> None:
    successor = Ledger(path, clock=clock)
    successor.claim("successor", 60.0, is_gone=lambda owner: owner == "me")
    successor.intend("fit.1", "cpu", KEYS)
    successor.close()


def test_a_claim_is_renewed_by_claiming_again(ledger: Ledger, path: Path, clock: Clock) -> None:
    clock.now += 50.0
    ledger.claim("me", 60.0)
    clock.now += 50.0

    with pytest.raises(RunBusy):
        Ledger(path, clock=clock).claim("another", 60.0)
    ledger.intend("fit.1", "cpu", KEYS)


def test_closing_lets_the_next_driver_in_at_once(path: Path, clock: Clock) -> None:
    first = Ledger(path, clock=clock)
    first.claim("first", 60.0)
    first.close()

    second = Ledger(path, clock=clock)
    second.claim("second", 60.0)
    second.intend("fit.1", "cpu", KEYS)
    second.close()


def test_nobody_writes_without_a_claim(path: Path, clock: Clock) -> None:
    with pytest.raises(LeaseLost, match=r"claim\(\) comes first"):
        Ledger(path, clock=clock).intend("fit.1", "cpu", KEYS)


def test_a_network_file_system_is_refused_with_advice(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"network file system \(lustre\).*local disk"):
        Ledger(path, file_system=lambda place: "lustre")


# --- kill -9

_SUBMIT = """
import sys
from pathlib import Path
from dagkit.executors.ledger import Ledger
from dagkit.model.messages import AttemptKey

ledger = Ledger(Path(sys.argv[1]))
ledger.claim("submitter", 600.0)
number = 0
while True:
    one = ledger.intend(f"job.{number}", "cpu", [AttemptKey("run", f"t-{number}", 0, 1)])
    print("intended", number, flush=True)
    ledger.accepted(one, str(number))
    print("accepted", number, flush=True)
    if number % 2:
        ledger.member_ended([(one, 0)])
        print("ended", number, flush=True)
    number += 1
"""


@pytest.mark.parametrize("lines", [1, 2, 5, 23, 104])
def test_a_killed_submitter_leaves_what_it_had_said(path: Path, lines: int) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(_SUBMIT), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as submitter:
        assert submitter.stdout is not None
        said = [submitter.stdout.readline() for _ in range(lines)]
        submitter.send_signal(signal.SIGKILL)
        said += submitter.stdout.read().splitlines(keepends=True)
    done = {(words[0], int(words[1])) for line in said if line.endswith("\n") and (words := line.split())}

    survivor = Ledger(path)
    survivor.claim("survivor", 60.0, is_gone=lambda owner: owner == "submitter")
    found = {int(submission.name.partition(".")[2]): submission.phase for submission in survivor.open()}
    survivor.close()

    for word, number in done:
        if word == "ended":
            assert number not in found
        elif ("ended", number) not in done and not (number % 2 and ("accepted", number) in done):
            assert number in found
            assert word != "accepted" or found[number] is Phase.ACCEPTED
