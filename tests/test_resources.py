"""Resources in whole runs: retried with more, decided upstream, held to the limits of queues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dagkit
from dagkit import task, workflow
from dagkit.config import load_settings
from dagkit.errors import ConfigError, TaskFailed, UsageError
from dagkit.model.states import RunStatus

TARGET = """
[targets.here]
default = "local"

[targets.here.queues.small]
max_memory = "1G"
max_runtime = "1h"

[targets.here.queues.large]
max_memory = "4G"

[targets.here.queues.usual]
default_memory = "2G"
default_runtime = "10m"
default_cores = 2
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dagkit.toml").write_text(TARGET)
    return str(tmp_path / ".dagkit")


@task(queue="small", memory="800M", retries=2, fallback_queues=["large"])
def fit() -> int:
    attempt = dagkit.workflow_context().attempt
    if attempt is not None and attempt < 3:
        raise MemoryError
    return attempt or 0


@task
def probe() -> dict[str, Any]:
    return {"mem": "300M", "where": "large", "wrong": "a lot"}


@task
def use(found: dict[str, Any]) -> str:
    return str(found["mem"])


def test_a_task_that_ran_out_of_memory_succeeds_with_more(store: str) -> None:
    run = fit().run(store=store, target="here", progress=False)

    assert run.result() == 3
    row = run.task("fit")
    assert (row.queue, row.resources["memory"]) == ("large", "1800M")


def test_a_request_above_its_queue_is_refused_before_anything_runs(store: str) -> None:
    node = fit.options(name="huge", memory="8G")()
    with pytest.raises(UsageError, match=r"huge asks for memory 8G, and queue small holds 1G\. Ask for less"):
        node.run(store=store, target="here", progress=False)


def test_a_queue_says_what_its_tasks_ask_for_where_they_do_not(store: str) -> None:
    @task(queue="usual", memory="200M", retries=1)
    def own() -> None:
        if dagkit.workflow_context().attempt == 1:
            raise MemoryError

    @task(queue="usual")
    def plain() -> None: ...

    @workflow
    def both() -> Any:
        return [own(), plain(), probe()]

    run = both().run(store=store, target="here", progress=False)

    assert run.task("plain").resources == {"memory": "2G", "runtime": "10m", "cores": 2}
    assert run.task("own").resources == {"memory": "300M", "runtime": "10m", "cores": 2}
    assert run.task("probe").resources == {}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('default_memory = "a lot"', "default_memory"),
        ('default_memory = "8G"\nmax_memory = "4G"', r"default_memory = '8G' is more than max_memory"),
    ],
)
def test_defaults_of_a_queue_that_cannot_be_meant_are_named(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "dagkit.toml").write_text(f"[targets.here]\ndefault = 'local'\n[targets.here.queues.q]\n{line}\n")

    with pytest.raises(ConfigError, match=words):
        load_settings(cwd=tmp_path).target("here")


def test_upstream_tasks_may_decide_resources_and_queue(store: str) -> None:
    @workflow
    def chosen() -> Any:
        found = probe()
        return use.options(name="use", resources={"memory": found["mem"], "queue": found["where"]})(found)

    run = chosen().run(store=store, target="here", progress=False)

    assert run.result() == "300M"
    row = run.task("use")
    assert (row.queue, row.resources) == ("large", {"memory": "300M"})


def test_a_function_may_decide_resources(store: str) -> None:
    def decide(found: dict[str, Any]) -> dict[str, Any]:
        return {"memory": found["mem"], "queue": "small"}

    @workflow
    def chosen() -> Any:
        return use.options(name="use", resources=decide)(probe())

    run = chosen().run(store=store, target="here", progress=False)

    assert run.result() == "300M"
    row = run.task("use")
    assert (row.queue, row.resources) == ("small", {"memory": "300M"})


def test_what_is_decided_wrongly_fails_the_task_and_names_the_key(store: str) -> None:
    @workflow
    def chosen() -> Any:
        found = probe()
        return use.options(name="use", retries=3, resources={"memory": found["wrong"]})(found)

    run = chosen().run(store=store, target="here", progress=False)

    with pytest.raises(TaskFailed, match=r"attempt 1 of 4, config\).*resources\.memory: 'a lot' is no amount"):
        run.result()
    assert run.status is RunStatus.FAILED


def test_what_was_decided_grows_from_there(store: str) -> None:
    @task(retries=1)
    def hungry(found: dict[str, Any]) -> int:
        if dagkit.workflow_context().attempt == 1:
            raise MemoryError
        return 1

    @workflow
    def chosen() -> Any:
        found = probe()
        return hungry.options(name="hungry", resources={"memory": found["mem"], "cores": 2})(found)

    run = chosen().run(store=store, target="here", progress=False)

    assert run.result() == 1
    assert run.task("hungry").resources == {"memory": "450M", "cores": 2}
