"""Whether a coordinator is alive, seen from outside."""

from __future__ import annotations

import json
import logging
import socket
import threading
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dagkit.coordinator import Coordinator, Liveness, Pace, Pulse
from dagkit.coordinator.liveness import STALE_S
from dagkit.errors import ConfigError
from dagkit.testing import FakeExecutor, MemoryStore

WORKING = Pulse("driving", 2, 0.01, {"completions": 7})
STUCK = Pulse("driving", 2, STALE_S + 1, {})


def get(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            text = error.read()
        return error.code, json.loads(text) if text.startswith(b"{") else None


def test_a_port_says_what_the_coordinator_does() -> None:
    with closing(Liveness("0", lambda: WORKING)) as liveness:
        code, document = get(liveness.where)

    assert code == 200
    assert document == {
        "alive": True,
        "state": "driving",
        "runs": 2,
        "step_age_s": 0.01,
        "counters": {"completions": 7},
    }


def test_a_loop_that_does_not_move_is_not_alive() -> None:
    with closing(Liveness("127.0.0.1:0", lambda: STUCK)) as liveness:
        code, document = get(liveness.where)

    assert (code, document["alive"]) == (503, False)


def test_other_paths_are_not_found() -> None:
    with closing(Liveness("0", lambda: WORKING)) as liveness:
        assert get(liveness.where.replace("/healthz", "/secrets"))[0] == 404


def test_it_answers_no_more_once_closed() -> None:
    liveness = Liveness("0", lambda: WORKING)
    liveness.close()

    with pytest.raises(urllib.error.URLError):
        get(liveness.where)


def test_a_file_exists_while_the_coordinator_lives(tmp_path: Path) -> None:
    path = tmp_path / "alive.json"

    with closing(Liveness(str(path), lambda: WORKING)):
        assert json.loads(path.read_text())["state"] == "driving"

    assert list(tmp_path.iterdir()) == []


def test_a_file_is_not_made_for_a_coordinator_that_is_stuck(tmp_path: Path) -> None:
    with closing(Liveness(str(tmp_path / "alive.json"), lambda: STUCK)):
        assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_and_a_file_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"{port} cannot be used: .*Name a free PORT"):
            Liveness(str(port), lambda: WORKING)
    with pytest.raises(ConfigError, match="cannot be used"):
        Liveness(str(tmp_path / "no" / "such" / "folder"), lambda: WORKING)
    with pytest.raises(ConfigError, match="99999"):
        Liveness("99999", lambda: WORKING)


def test_a_coordinator_that_stands_by_says_so() -> None:
    store = MemoryStore()
    lease = store.acquire_lease("coordinator", "somebody (elsewhere) #1.0", 60.0)
    assert lease is not None
    stop = threading.Event()
    coordinator = Coordinator(store, lambda queue: FakeExecutor(), discover=True, pace=Pace(idle_sleep_s=0.01))
    serving = threading.Thread(target=coordinator.serve, args=(stop,))
    serving.start()

    standing_by = coordinator.pulse()
    store.release_lease(lease)
    deadline = threading.Event()
    for _ in range(1000):
        if coordinator.pulse().state == "driving":
            break
        deadline.wait(0.01)
    driving = coordinator.pulse()
    stop.set()
    serving.join(10.0)

    assert (standing_by.state, driving.state) == ("standing by", "driving")
    assert driving.is_alive
    assert not serving.is_alive()


def test_counters_are_logged_when_they_have_changed(caplog: pytest.LogCaptureFixture) -> None:
    coordinator = Coordinator(MemoryStore(), lambda queue: FakeExecutor(), pace=Pace(log_counters_s=1e-6))
    with closing(coordinator), caplog.at_level(logging.INFO, "dagkit.coordinator"):
        coordinator.counters.completions = 3
        for _ in range(3):
            coordinator.step()

    records = [record for record in caplog.records if hasattr(record, "counters")]
    assert [record.counters["completions"] for record in records] == [3]
    assert "completions=3" in records[0].message
