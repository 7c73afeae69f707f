"""Declaring tasks: what may be a task, how calls bind, options, maps, names and commands."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import pickle
import warnings
from typing import Any

import cloudpickle
import pytest

from dagkit import shell, task, workflow
from dagkit.errors import NotPicklable, TracingError, UsageError
from dagkit.flow import flow_of
from dagkit.task import Task
from dagkit.trace import Node


@task
def train(features: Any, lr: float = 0.1) -> dict[str, float]:
    """Fit a model."""
    return {"mae": features * lr}


@task
def anything(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


def names(flow: Any) -> list[str]:
    return [task.name for task in flow.spec.tasks]


def only(node: Node[Any]) -> Any:
    return flow_of(node).spec.tasks[-1]


def call_of(node: Node[Any]) -> dict[str, Any]:
    call = dict(only(node).kwargs["call"])
    for key in ("pickle", "function", "fingerprint"):
        call.pop(key, None)
    return call


# --- what may be a task


def test_a_task_keeps_the_face_of_its_function() -> None:
    assert train.__name__ == "train"
    assert train.__doc__ == "Fit a model."
    assert str(inspect.signature(train)).startswith("(features")
    assert train.fn(2, lr=3) == {"mae": 6}
    assert "train(features, lr=0.1)" in repr(train)


def test_calling_a_task_runs_nothing() -> None:
    ran: list[int] = []

    @task
    def effect() -> None:
        ran.append(1)

    assert isinstance(effect(), Node)
    assert ran == []


class Steps:
    @staticmethod
    @task
    def inner(x: int) -> int:
        return x

    @task
    @staticmethod
    def outer(x: int) -> int:
        return x


def test_static_methods_may_be_tasks() -> None:
    assert call_of(Steps.inner(1)) == call_of(Steps.outer(1)) == {"args": [1]}


def method(kind: Any) -> Any:
    class Model:
        @kind
        def fit(self) -> None: ...

    return Model


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: method(task), "method"),
        (lambda: task(method(lambda fn: fn)().fit), "method"),
        (lambda: method(lambda fn: task(classmethod(fn))), "class method"),
        (lambda: task(Steps), "class"),
        (lambda: task(3), "int"),
        (lambda: task(train), r"already.*options"),
        (lambda: task(workflow(lambda: None)), "workflow"),
        (lambda: task("train"), "name='train'"),
        (lambda: task(lambda: (yield)), "generator"),
    ],
)
def test_what_cannot_be_a_task_is_refused_with_the_way_out(declare: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        declare()


def test_an_async_generator_is_refused_and_a_coroutine_function_is_not() -> None:
    async def stream() -> Any:
        yield 1

    async def fetch() -> int:
        return 1

    with pytest.raises(TypeError, match="generator"):
        task(stream)
    assert isinstance(task(fetch)(), Node)


def test_lambdas_partials_and_builtins_may_be_tasks() -> None:
    doubled = task(functools.partial(train.fn, lr=2))

    assert names(flow_of(task(lambda x: x)(1))) == ["lambda"]
    assert names(flow_of(doubled(1))) == ["train"]
    assert names(flow_of(task(max)(1, 2))) == ["max"]


def test_a_wrapped_function_keeps_its_signature() -> None:
    def logged(fn: Any) -> Any:
        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        return wrapper

    @task
    @logged
    def fit(x: int) -> int:
        return x

    with pytest.raises(TypeError, match=r"fit\(x\).*missing"):
        fit()  # type: ignore[call-arg]


# --- calls


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: train(), "missing a required argument: 'features'"),
        (lambda: train(1, 2, 3), "too many positional"),
        (lambda: train(1, rate=2), "unexpected keyword argument 'rate'"),
        (lambda: train(1, features=2), "multiple values"),
        (lambda: train.map([1], rate=[2]), "unexpected keyword argument 'rate'"),
        (lambda: train.partial(1, 2)(3), "too many positional"),
    ],
)
def test_a_wrong_call_is_a_type_error_naming_task_and_signature(call: Any, words: str) -> None:
    with pytest.raises(TypeError, match=rf"train\(features, lr=0.1\): .*{words}"):
        call()


def test_arguments_stay_as_they_were_given_and_defaults_are_left_to_the_worker() -> None:
    @task
    def kinds(a: Any, /, b: Any, *rest: Any, c: Any, d: Any = 4, **more: Any) -> None: ...

    assert call_of(kinds(1, 2, 3, c=5, e=6)) == {"args": [1, 2, 3], "kwargs": {"c": 5, "e": 6}}
    assert call_of(kinds(1, b=2, c=5)) == {"args": [1], "kwargs": {"b": 2, "c": 5}}
    with pytest.raises(TypeError, match="missing"):
        kinds(1, 2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        kinds(a=1, b=2, c=3)  # type: ignore[call-arg]


def test_many_shapes_of_calls_are_not_remembered_for_ever() -> None:
    for number in range(600):
        anything(**{f"k{number}": number})

    assert len(anything.declaration.signature._shapes) <= 256


def test_keyword_arguments_may_have_any_name() -> None:
    node = anything(self=1, task=2, name=3, fn=4, env=5, after=6)

    assert call_of(node)["kwargs"] == {"self": 1, "task": 2, "name": 3, "fn": 4, "env": 5, "after": 6}


# --- options


def test_options_return_a_copy() -> None:
    gpu = train.options(queue="gpu", retries=2)

    assert (only(gpu(1)).queue, only(gpu(1)).num_retries) == ("gpu", 2)
    assert (only(train(1)).queue, only(train(1)).num_retries) == (None, 0)
    assert only(gpu.options(queue=None)(1)).queue is None


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"retries": 3, "retry_delay": "10s"}, {"num_retries": 3, "retry_delay_s": 10.0}),
        ({"retries": 3, "retry_delay": 2, "backoff": 2}, {"retry_delay_s": (2.0, 4.0, 8.0)}),
        ({"retries": 3, "retry_delay": [1, "1m"]}, {"retry_delay_s": (1.0, 60.0)}),
        ({"timeout": "2h"}, {"timeout_s": 7200}),
        ({"timeout": 0.5}, {"timeout_s": 1}),
        ({"cores": 4, "memory": "40G", "runtime": "2h"}, {"resources": {"cores": 4, "memory": "40G", "runtime": "2h"}}),
        ({"gpus": 0, "nodes": 2}, {"resources": {"gpus": 0, "nodes": 2}}),
        ({"resources": {"memory": "1G", "qos": "high"}}, {"resources": {"memory": "1G", "extra": {"qos": "high"}}}),
        ({"resources": {"memory": "1G", "queue": "gpu"}}, {"resources": {"memory": "1G"}, "queue": "gpu"}),
        ({"memory": "1G", "resource_scales": {"memory": 0.5}}, {"resource_scales": {"memory": 0.5}}),
        (
            {"retries": 2, "memory": "1G", "resource_scales": {"memory": ["2G", "4G"]}},
            {"resource_scales": {"memory": ["2G", "4G"]}},
        ),
        (
            {"retries": 3, "memory": "1G", "resource_scales": {"memory": lambda it: it * 2}},
            {"resource_scales": {"memory": ["2G", "4G", "8G"]}},
        ),
        (
            {"retries": 2, "cores": 1, "resource_scales": {"cores": itertools.count(2)}},
            {"resource_scales": {"cores": [2, 3]}},
        ),
        ({"fallback_queues": ["a", "b"]}, {"fallback_queues": ("a", "b")}),
        ({"expected_outputs": ["model.pt"]}, {"expected_outputs": ("model.pt",)}),
        ({"priority": -3}, {"priority": -3}),
        ({"dep_policy": "any"}, {"dep_policy": "any"}),
    ],
)
def test_options_reach_the_model(options: dict[str, Any], fields: dict[str, Any]) -> None:
    spec = only(train.options(**options)(1))

    assert {key: getattr(spec, key) for key in fields} == fields


def test_cache_and_outputs_stand_in_the_call() -> None:
    call = only(train.options(cache=True, outputs=2)(1)).kwargs["call"]

    assert (call["cache"], call["outputs"]) == (True, 2)
    assert call["fingerprint"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"retires": 3}, "Did you mean 'retries'"),
        ({"colour": "red"}, "there is no option 'colour'"),
    ],
)
def test_an_unknown_option_is_a_type_error(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=f"train: .*{words}"):
        train.options(**options)
    with pytest.raises(TypeError, match=words):
        task(**options)(train.fn)


@pytest.mark.parametrize(
    "options",
    [
        {"retries": -1},
        {"retries": True},
        {"retries": 1.0},
        {"retry_delay": "soon"},
        {"retry_delay": []},
        {"backoff": 2},
        {"retry_delay": 1, "backoff": 0.5},
        {"timeout": 0},
        {"timeout": "1:30"},
        {"queue": " "},
        {"queue": 3},
        {"memory": "lots"},
        {"memory": 0},
        {"cores": 0},
        {"cores": "4"},
        {"runtime": "-2h"},
        {"gpus": -1},
        {"resources": "40G"},
        {"resources": {"memory": "x"}},
        {"fallback_queues": "gpu"},
        {"cache": 1},
        {"outputs": 0},
        {"priority": "high"},
        {"dep_policy": "most"},
        {"dep_policy": 0},
        {"dep_policy": True},
        {"name": ""},
        {"name": "fit-{seed"},
        {"name": "fit-{x.y}"},
        {"name": "fit-{}"},
    ],
)
def test_a_wrong_value_is_refused_where_it_is_said(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="train: "):
        train.options(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"memory": "4G", "resource_scales": {"memory": ["2G"]}},
        {"resource_scales": {"memory": ["2G", "1G"]}},
        {"resource_scales": {"memory": lambda it: it * 2}},
        {"memory": "1G", "resource_scales": {"memory": lambda it: it}},
        {"memory": "1G", "resource_scales": {"memory": "double"}},
    ],
)
def test_a_request_that_does_not_grow_is_refused_when_compiled(options: dict[str, Any]) -> None:
    node = train.options(retries=3, **options)(1)

    with pytest.raises(UsageError, match="memory"):
        only(node)


def test_resources_may_be_decided_by_other_tasks() -> None:
    probe = anything()
    spec = flow_of(train.options(memory=probe["mem"], resources={"cores": 2, "queue": probe["queue"]})(1)).spec

    assert spec.tasks[-1].depends_on == ("anything",)
    assert spec.tasks[-1].resources == {
        "cores": 2,
        "queue": {"$ref": "anything", "path": ["queue"]},
        "memory": {"$ref": "anything", "path": ["mem"]},
    }


def test_resources_may_be_a_function_of_the_arguments() -> None:
    def needs(features: Any, lr: float = 0) -> dict[str, Any]:
        return {"memory": "1G"}

    data = anything()
    spec = flow_of(train.options(resources=needs)(data, 0.5)).spec

    assert [task.name for task in spec.tasks] == ["anything", "train.resources", "train"]
    assert spec.tasks[1].kwargs["call"]["args"] == [{"$ref": "anything"}, 0.5]
    assert spec.tasks[2].resources == {"$ref": "train.resources"}
    assert set(spec.tasks[2].depends_on) == {"anything", "train.resources"}


def test_after_adds_order_without_an_argument() -> None:
    first, many = anything(1), anything.map([1, 2])
    spec = only(train.options(after=[first, many])(3))

    assert spec.kwargs["call"]["args"] == [3]
    assert sorted(spec.depends_on) == ["anything", "anything-0", "anything-1"]
    assert only(train.options(after=first)(3)).depends_on == ("anything",)


def test_after_takes_nodes_only() -> None:
    with pytest.raises(TracingError, match=r"Call the task"):
        train.options(after=anything)
    with pytest.raises(TracingError, match="nodes"):
        train.options(after=["anything"])


# --- map and product


def test_map_zips_and_numbers_from_zero() -> None:
    with workflow("w") as flow:
        nodes = train.map([10, 20], lr=[0.1, 0.2, 0.3])

    assert [task.kwargs["call"].get("args") for task in flow.spec.tasks] == [[10], [20]]
    assert [task.kwargs["call"].get("kwargs") for task in flow.spec.tasks] == [{"lr": 0.1}, {"lr": 0.2}]
    assert names(flow) == ["train-0", "train-1"]
    assert {task.template for task in flow.spec.tasks} == {"train"}
    assert [flow.name_of(node) for node in nodes] == ["train-0", "train-1"]


def test_product_varies_the_last_fastest() -> None:
    nodes = train.product(features=[1, 2], lr=iter([3, 4]))

    assert [node._values for node in nodes] == [(1, 3), (1, 4), (2, 3), (2, 4)]


def test_partial_fixes_what_all_items_share() -> None:
    by_position = anything.partial("data", scale=2).map([1, 2], seed=[3, 4])

    assert call_of(by_position[1]) == {"args": ["data", 2], "kwargs": {"scale": 2, "seed": 4}}
    assert call_of(anything.partial(scale=2).map(scale=[5])[0]) == {"kwargs": {"scale": 5}}
    assert call_of(train.partial(1)(lr=2)) == {"args": [1], "kwargs": {"lr": 2}}


@pytest.mark.parametrize("verb", ["map", "product"])
def test_what_is_not_a_list_of_items_is_refused_with_partial_as_the_way_out(verb: str) -> None:
    for wrong in (0.1, "abc", None):
        with pytest.raises(TypeError, match=r"train\.partial"):
            getattr(train, verb)([1], lr=wrong)
    with pytest.raises(TypeError, match="at least one"):
        getattr(train, verb)()
    with pytest.raises(TracingError, match="before tracing"):
        getattr(train, verb)(anything())


def test_a_map_over_nothing_is_nothing() -> None:
    assert train.map([]) == []


def test_nodes_of_a_map_may_be_mapped_again() -> None:
    with workflow("w") as flow:
        train.map(anything.map([1, 2]))

    assert [task.depends_on for task in flow.spec.tasks[2:]] == [("anything-0",), ("anything-1",)]


# --- names


def test_names_follow_call_order() -> None:
    with workflow("w") as flow:
        train(1)
        train(2)
        train.map([1, 2])
        train(3)
        train.map([3])

    assert names(flow) == ["train", "train-1", "train-0", "train-2", "train-3", "train-4"]


def test_a_name_given_is_kept_and_generated_names_go_around_it() -> None:
    with workflow("w") as flow:
        train(1)
        train(2)
        anything.options(name="train-1")()
        anything.options(name="train")()
        train.options(name="train-1")(3)

    assert names(flow) == ["train-2", "train-3", "train-1", "train", "train-1-1"]


def test_templates_name_items_by_their_arguments() -> None:
    with workflow("w") as flow:
        fit = train.options(name="fit-{lr:.2f}-{features!r}")
        fit.map(features=["a", "b"], lr=[0.5, 0.25])
        fit("c")
        fit("c")
        anything.options(name="all-{args}-{{x}}")(1, 2)

    assert names(flow) == ["fit-0.50-'a'", "fit-0.25-'b'", "fit-0.10-'c'", "fit-0.10-'c'-1", "all-(1, 2)-{x}"]
    assert {task.template for task in flow.spec.tasks[:4]} == {"train"}


def test_a_template_needs_an_argument_that_is_known_now() -> None:
    with pytest.raises(UsageError, match=r"no argument 'seed', only features, lr"):
        train.options(name="fit-{seed}")(1)
    with pytest.raises(TracingError, match="output of anything"):
        train.options(name="fit-{features}")(anything())
    with pytest.raises(UsageError, match="features='a'"):
        train.options(name="fit-{features:03d}")("a")


def test_text_from_arguments_cannot_break_a_name() -> None:
    node = train.options(name="fit-{features}")("a\n\tb" + "c" * 500)

    assert only(node).name == "fit-a b" + "c" * 77


def test_two_functions_of_one_name_are_two_templates() -> None:
    def make(factor: int) -> Task[..., Any]:
        @task
        def fit(x: int) -> int:
            return x * factor

        return fit

    with workflow("w") as flow:
        for factor in (1, 2):
            make(factor).map([1, 2])

    assert [task.template for task in flow.spec.tasks] == ["fit", "fit", "fit-1", "fit-1"]


# --- how tasks and values travel


def test_a_function_that_refers_to_a_task_travels() -> None:
    @task
    def outer(x: int) -> Any:
        return train.fn(x)

    copied = pickle.loads(cloudpickle.dumps(outer.fn))

    assert copied(2) == {"mae": 0.2}


def test_what_cannot_travel_is_named_when_compiled() -> None:
    import threading

    guard = threading.Lock()

    @task
    def locked() -> Any:
        return guard

    with pytest.raises(NotPicklable, match=r"locked: .*'guard'"):
        _ = flow_of(locked()).spec
    with pytest.raises(NotPicklable, match=r"train: argument 'lr'"):
        _ = flow_of(train(1, lr=threading.Lock())).spec
    with pytest.raises(NotPicklable, match=r"anything: argument 'args'"):
        _ = flow_of(anything(1, [threading.Lock()])).spec


def test_a_function_cannot_capture_a_node() -> None:
    data = anything()

    @task
    def peek() -> Any:
        return data

    with pytest.raises((TracingError, NotPicklable), match="argument"):
        _ = flow_of(peek()).spec


def test_one_payload_serves_all_items_of_a_map() -> None:
    with workflow("w") as flow:
        anything.partial({1, 2, 3}).map(range(100))

    assert len(flow.payloads) == 2
    assert len({task.kwargs["call"]["pickle"] for task in flow.spec.tasks}) == 1


@dataclasses.dataclass
class Config:
    model: Any
    depth: int = 1


class Unidentified:
    def __dagkit_fingerprint__(self) -> None:
        return None


def fingerprint(node: Node[Any]) -> str | None:
    return only(node).kwargs["call"].get("fingerprint")


def test_fingerprints_follow_code_and_arguments() -> None:
    @task
    def other(features: Any, lr: float = 0.1) -> Any:
        return features + lr

    assert fingerprint(train(1)) == fingerprint(train(1))
    assert fingerprint(train(1)) != fingerprint(train(2))
    assert fingerprint(train(1)) != fingerprint(train(1.0))
    assert fingerprint(train(1)) != fingerprint(train("1"))
    assert fingerprint(train(1)) != fingerprint(other(1))
    assert fingerprint(train({1, 2})) == fingerprint(train({2, 1}))
    assert fingerprint(train(Unidentified())) is None
    assert fingerprint(train([1, Unidentified()])) is None


def test_fingerprints_do_not_depend_on_upstream_names_but_on_their_places() -> None:
    def both(first: str, second: str, wrap: Any) -> str | None:
        a, b = anything.options(name=first)(1), anything.options(name=second)(2)
        return fingerprint(train(wrap(a), wrap(b)))

    for wrap in (lambda it: it, lambda it: [it], lambda it: it["x"], lambda it: {"k": (it,)}, Config):
        assert both("a", "b", wrap) == both("c", "d", wrap) is not None

    a = anything(1)
    assert fingerprint(train(a, a)) != fingerprint(train(a, anything(2)))
    assert fingerprint(train(a["x"])) != fingerprint(train(a["y"])) != fingerprint(train(a))
    assert fingerprint(train(Config(a["x"]))) != fingerprint(train(Config(a["y"])))


# --- commands


def test_a_command_is_a_task_that_is_called() -> None:
    prep = shell("python prep.py --all", env={"YEAR": 2024}, cwd="data", queue="cpu", retries=1)
    with workflow("w") as flow:
        first = prep()
        prep(after=[first], env={"MONTH": "1"}, cwd="other")

    one, two = flow.spec.tasks
    assert (one.name, one.queue, one.num_retries) == ("prep", "cpu", 1)
    assert one.kwargs == {"cmd": "python prep.py --all", "env": {"YEAR": "2024"}, "cwd": "data"}
    assert two.kwargs == {"cmd": "python prep.py --all", "env": {"YEAR": "2024", "MONTH": "1"}, "cwd": "other"}
    assert (two.name, two.depends_on) == ("prep-1", ("prep",))


def test_nothing_in_a_command_is_expanded() -> None:
    assert only(shell("echo {x} $HOME %s")()).kwargs["cmd"] == "echo {x} $HOME %s"


def test_commands_map_over_environments_and_are_named_by_them() -> None:
    with workflow("w") as flow:
        shell("fit --lr $LR", env={"LR": 0}, name="fit-{LR}").map(env=[{"LR": 0.1}, {"LR": 0.2}])
        shell("fit --lr $LR").map(env=[{"LR": 0.1}])

    assert names(flow) == ["fit-0.1", "fit-0.2", "fit-0"]
    assert [task.kwargs["env"]["LR"] for task in flow.spec.tasks] == ["0.1", "0.2", "0.1"]


@pytest.mark.parametrize(
    ("cmd", "name"),
    [
        ("make data", "make"),
        ("python train.py --lr 0.1", "train"),
        ("A=1 B=2 ./run.sh", "run"),
        ("/usr/bin/python3 -m pkg", "python3"),
        ("bash scripts/all.sh", "all"),
        ("echo 'unbalanced", "shell"),
        ("# only a comment", "shell"),
        ("$CMD", "CMD"),
        ("!!", "shell"),
    ],
)
def test_a_command_is_called_after_its_program_or_script(cmd: str, name: str) -> None:
    assert only(shell(cmd)()).name == name


@pytest.mark.parametrize("cmd", ["", "  ", None, ["python", "x.py"]])
def test_a_command_is_text(cmd: Any) -> None:
    with pytest.raises(TypeError, match="command is text"):
        shell(cmd)


def test_an_output_cannot_be_a_variable_and_the_message_says_how_to_read_it() -> None:
    data = anything()

    with pytest.raises(TracingError, match=r"get_upstream_output\('anything'\)"):
        shell("x", env={"DATA": data})
    with pytest.raises(TracingError, match="after="):
        shell("x")(env={"DATA": data["path"]})
    with pytest.raises(TypeError, match="variable"):
        shell("x", env={"FLAG": True})


def test_a_command_that_is_never_called_is_pointed_out() -> None:
    @workflow
    def pipeline() -> None:
        train(1)
        shell("make data")

    with pytest.warns(UserWarning, match="never called"):
        pipeline()
    with pytest.warns(UserWarning, match="never called"), workflow("w"):
        shell("make data")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with workflow("w"):
            shell("make data").options(queue="x")()
