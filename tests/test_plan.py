"""Plans: what would run, its sizes, and what is cached and why."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from dagkit import task, workflow
from dagkit.engine.identity import identities
from dagkit.errors import ConfigError
from dagkit.flow import Flow, flow_of


@task
def load(path: str) -> Any:
    return path


@task(queue="gpu", retries=2, memory="40G", cache=True)
def train(data: Any, lr: float) -> Any:
    return lr


@task
def compare(models: Any) -> Any:
    return models


def sweep(count: int = 3) -> Flow:
    with workflow("sweep") as flow:
        data = load("raw")
        compare(train.partial(data).map(lr=[0.1 * n for n in range(count)]))
    return flow


def test_a_plan_counts_tasks_by_template_and_queue() -> None:
    plan = sweep().plan()

    assert [(group.template, group.queue, group.tasks) for group in plan.groups] == [
        ("load", "default", 1),
        ("train", "gpu", 3),
        ("compare", "default", 1),
    ]
    assert (plan.tasks, plan.depth) == (5, 3)
    assert plan.groups[1].retries == 2
    assert plan.groups[1].resources == "memory 40G"
    assert plan.groups[0].argument_bytes == len('["raw"]')
    assert plan.payload_bytes == sum(map(len, sweep().payloads.values()))


def test_a_plan_says_what_is_cached_and_why() -> None:
    flow = sweep()
    known = identities(flow.spec)
    blind, looked = flow.plan(), flow.plan(cached={str(known[2]): "0.1"})

    assert blind.cached == ()
    assert {entry.reason for entry in blind.cache} == {"no store was given to look in, plan(store=...)"}
    assert looked.cached == ("train-1",)
    assert "same code, arguments and upstream work" in looked.cache[1].reason
    assert "nothing in the store" in looked.cache[0].reason
    assert "1 cached" in str(looked)


class Unidentified:
    def __dagkit_fingerprint__(self) -> None:
        return None


def test_a_plan_names_what_keeps_a_result_from_being_reused() -> None:
    own = flow_of(train(Unidentified(), 0.1)).plan(cached={})
    upstream = flow_of(train(compare(Unidentified()), 0.1)).plan(cached={})

    assert own.cache[0].reason == "its code or an argument cannot be fingerprinted"
    assert upstream.cache[0].reason == "the code or an argument of compare cannot be fingerprinted"


def test_a_plan_warns_of_what_is_large() -> None:
    with workflow("w") as flow:
        train.partial(np.zeros(2_000_000)).map(lr=[0.1, 0.2])

    (warning,) = flow.plan().warnings

    assert warning == "15.3 MiB travel to 2 tasks (train-0, train-1)"


def test_a_plan_for_a_target_says_where_tasks_run() -> None:
    plan = sweep().plan(target="local")

    assert {group.executor for group in plan.groups} == {"local"}
    with pytest.raises(ConfigError, match="fugaku"):
        sweep().plan(target="fugaku")


def test_resources_decided_by_others_are_shown_as_such() -> None:
    probe = load("x")
    by_ref = flow_of(train.options(memory=probe["mem"])(1, 0.1)).plan()
    by_function = flow_of(train.options(memory=None).options(resources=lambda data, lr: {})(1, 0.1)).plan()
    mixed = flow_of(compare([train(1, 0.1), train.options(memory="1G")(1, 0.2)])).plan()

    assert by_ref.groups[1].resources == "memory by load"
    assert by_function.groups[1].resources == "decided by train.resources"
    assert mixed.groups[0].resources == "various"


def test_a_plan_shows_itself_everywhere() -> None:
    plan = sweep(12).plan(cached={})
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(plan)

    for text in (str(plan), repr(plan), plan._repr_html_(), console.export_text()):
        assert "14 tasks, 3 deep" in text
        assert "train" in text
        assert "40G" in text
    assert "train-0, train-1, train-2, train-3, train-4 and 7 more" in str(plan)


def test_html_of_a_plan_is_escaped() -> None:
    plan = flow_of(load.options(name="<b>x</b>", queue="<i>")("x")).plan()

    assert "<i>" not in plan._repr_html_()


def test_markup_in_names_does_not_reach_the_terminal() -> None:
    plan = flow_of(load.options(queue="[red]q[/bold]")("x")).plan()
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(plan)

    assert "[red]q[/bold]" in console.export_text()
