"""Commands over a real store: what goes to stdout and stderr, JSON shapes, exit codes."""

from __future__ import annotations

import re

import pytest

BAD = "name: bad\ntasks:\n- {name: train}\n- {name: b, depends_on: [trainn], num_retries: true}\n"
SCRIPT = """\
from dagkit import task, workflow

@task
def add(x, y):
    print("adding", x, y)
    return x + y

@task
def total(numbers):
    return {"sum": sum(numbers)}

@workflow
def sums(n: int = 3):
    return total([add(i, 1) for i in range(n)])

@workflow
def broken():
    return total(1 / 0)
"""


# --- validate


def test_validate_says_ok_on_stdout_and_every_problem_on_stderr(project) -> None:
    project.write("good.yaml", "name: g\ntasks: [{name: a}]\n")
    project.write("bad.yaml", BAD)

    result = project.call("validate", "good.yaml", "bad.yaml", code=1)

    assert result.stdout == "OK    good.yaml  (1 task)\n"
    lines = result.stderr.splitlines()
    assert lines[0] == "FAIL  bad.yaml  2 problems"
    assert '  line 4  tasks[1] (b)  depends_on: "trainn" is not a task. Did you mean "train"?' in lines
    assert any("num_retries" in line for line in lines)


@pytest.mark.parametrize("text", ["name: [", "just text", "", "a: 1\na: 2"])
def test_what_is_no_yaml_or_no_workflow_is_a_fail_line_too(project, text: str) -> None:
    project.write("x.yaml", text)

    assert project.call("validate", "x.yaml", code=1).stderr.startswith("FAIL  x.yaml  ")


def test_a_missing_file_fails(project) -> None:
    assert "No such file" in project.call("validate", "gone.yaml", code=1).stderr


def test_validate_portable_names_what_others_cannot_read(project) -> None:
    project.write("x.yaml", "name: x\ntasks: [{name: a, priority: 3, kwargs: {cmd: ls}}]\n")

    project.call("validate", "x.yaml")
    assert "priority" in project.call("validate", "--portable", "x.yaml", code=1).stderr


def test_validate_json(project) -> None:
    project.write("bad.yaml", BAD)

    (check,) = project.json("validate", "bad.yaml", code=1)

    assert (check["file"], check["ok"]) == ("bad.yaml", False)
    found = {(problem["line"], problem["field"], problem["task"]) for problem in check["problems"]}
    assert found == {(4, "depends_on", "b"), (4, "num_retries", "b")}


# --- submit


def test_submit_prints_the_id_and_nothing_else_on_stdout(project) -> None:
    project.write("d.yaml", project.diamond)
    result = project.call("submit", "d.yaml")

    assert re.fullmatch(r"[0-9a-f]{32}\n", result.stdout)
    assert f'Submitted "diamond" (4 tasks, 1 root: a) to {project.folder}/.dagkit → {result.stdout}' in result.stderr
    assert result.stderr.startswith(f"▶ Submit {project.folder}/.dagkit\n")


def test_submit_many_prints_one_id_a_line(project) -> None:
    paths = [str(project.write(f"{n}.yaml", project.diamond)) for n in range(3)]
    result = project.call("submit", *paths)

    assert len(set(result.stdout.split())) == 3
    assert "Submitted 3/3 workflows (12 tasks)" in result.stderr


def test_submit_takes_paths_from_stdin(project) -> None:
    project.write("d.yaml", project.diamond)

    assert len(project.call("submit", stdin="d.yaml\n\nd.yaml\n").stdout.split()) == 2
    assert "no workflow" in project.call("submit", stdin="", code=2).stderr


def test_submit_reads_a_definition_from_stdin(project) -> None:
    assert len(project.call("submit", "-", stdin=project.diamond).stdout.split()) == 1


def test_nothing_is_submitted_when_one_of_several_is_wrong(project) -> None:
    project.write("d.yaml", project.diamond)
    project.write("bad.yaml", BAD)
    result = project.call("submit", "d.yaml", "bad.yaml", "gone.yaml", code=1)

    assert result.stdout == ""
    assert "error: bad.yaml: 2 problems" in result.stderr
    assert "error: gone.yaml" in result.stderr
    assert "Submitted 0/3 workflows" in result.stderr
    assert project.json("list") == []


def test_an_id_is_for_one_workflow_and_is_taken_once(project) -> None:
    project.write("d.yaml", project.diamond)

    assert project.call("submit", "d.yaml", "d.yaml", "--id", "x", code=2).stdout == ""
    assert project.call("submit", "d.yaml", "--id", "mine").stdout == "mine\n"
    project.write("e.yaml", project.failing)
    assert "exists already" in project.call("submit", "e.yaml", "--id", "mine", code=1).stderr


def test_submit_json_maps_every_file_to_its_id_or_its_error(project) -> None:
    project.write("d.yaml", project.diamond)
    (done,) = project.json("submit", "d.yaml")
    failed = project.json("submit", "d.yaml", "gone.yaml", code=1)

    assert (done["file"], done["task_count"], done["error"]) == ("d.yaml", 4, None)
    assert [bool(document["error"]) for document in failed] == [False, True]


# --- run


def test_run_drives_a_file_to_its_end_and_prints_the_result(project) -> None:
    project.write("d.yaml", project.diamond)
    result = project.call("run", "d.yaml", "--id", "r1", "--no-progress")

    assert "✓ completed" in result.stderr
    assert project.json("status", "r1")["status"] == "completed"
    assert project.call("logs", "r1", "a").stdout == "hello from a\n"


def test_run_calls_a_workflow_function_with_parameters(project) -> None:
    project.write("flows.py", SCRIPT)

    assert project.json("run", "flows.py:sums", "-p", "n=4")["result"] == {"sum": 10}
    assert project.call("run", "flows.py:sums", "-p", "n=2", "--no-progress").stdout == '{\n  "sum": 3\n}\n'


def test_a_run_that_fails_has_exit_code_1_and_says_what_to_type(project) -> None:
    project.write("f.yaml", project.failing)
    result = project.call("run", "f.yaml", "--id", "f", "--no-progress", code=1)

    assert "✗ bad" in result.stderr
    assert "dagkit retry f" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["flows.py"], "several workflows; say which: flows.py:sums, flows.py:broken"),
        (["flows.py:nope"], "has no 'nope'"),
        (["flows.py:sums", "-p", "m=3"], "unexpected keyword argument 'm'"),
        (["flows.py:sums", "-p", "n"], "expected name=value"),
        (["no_such_module:flow"], "no module 'no_such_module'"),
        (["gone.yaml"], "gone.yaml"),
        (["flows.py:sums", "--target", "moon"], "no target 'moon'"),
        (["flows.py:sums", "--resume"], "--resume needs --id"),
    ],
)
def test_mistakes_in_run_are_one_error(project, words: list[str], said: str) -> None:
    project.write("flows.py", SCRIPT)
    stderr = project.call("run", *words, code=2).stderr

    assert stderr.startswith("error: ")
    assert said in stderr


def test_what_the_code_of_the_user_raises_is_shown_with_its_own_lines(project) -> None:
    project.write("flows.py", SCRIPT)
    result = project.call("run", "flows.py:broken", code=1)

    assert "return total(1 / 0)" in result.stderr
    assert "error: flows.py:broken: ZeroDivisionError: division by zero" in result.stderr
    assert "dagkit/cli" not in result.stderr


# --- looking


def test_status_shows_groups_and_its_json_has_the_tasks(project) -> None:
    project.submit("name: two\ntasks: [{name: a}, {name: b, depends_on: [a]}]\n", "--id", "w1")

    text = project.call("status", "w1", "--tasks").stdout
    document = project.json("status", "w1")

    assert "two  w1   · pending   0 of 2   driven by nobody" in text
    assert "nobody drives this run" in text
    assert {key: document[key] for key in ("workflow_id", "name", "status", "total", "pending")} == {
        "workflow_id": "w1",
        "name": "two",
        "status": "pending",
        "total": 2,
        "pending": 2,
    }
    assert [task["name"] for task in document["tasks"]] == ["a", "b"]
    assert set(document["tasks"][1]) >= {
        "name",
        "status",
        "depends_on",
        "dep_policy",
        "completed_deps",
        "failed_deps",
        "queue",
        "error",
        "started_at",
        "completed_at",
        "retries_remaining",
    }


def test_a_run_is_found_by_the_beginning_of_its_id_and_by_its_name(project) -> None:
    workflow_id = project.submit()

    assert project.json("status", workflow_id[:8])["workflow_id"] == workflow_id
    assert project.json("status", "diamond")["workflow_id"] == workflow_id
    assert project.json("status", f"diamond-{workflow_id[:4]}")["workflow_id"] == workflow_id
    project.submit()
    assert "may mean 2 runs, newest first: " in project.call("status", "diamond", code=2).stderr


@pytest.mark.parametrize("command", ["status", "errors", "explain", "usage"])
def test_commands_that_look_take_the_run_that_changed_last(project, command) -> None:
    project.submit()
    latest = project.submit()

    assert project.call(command).stdout == project.call(command, latest).stdout
    assert project.call(command, "latest").stdout == project.call(command, latest).stdout


def test_list_filters_and_says_when_there_is_nothing(project) -> None:
    assert project.call("list").stdout == "No workflows found.\n"
    first = project.submit()
    second = project.submit()

    assert {run["workflow_id"] for run in project.json("list")} == {first, second}
    assert len(project.json("list", "--recent", "1")) == 1
    assert project.json("list", "--status", "failed") == []
    assert "0/4 done, 0 fail" in project.call("list").stdout


def test_tasks_filters_by_state_queue_and_prefix_and_says_when_it_cuts(project) -> None:
    workflow_id = project.submit()

    def names(*words: str) -> list[str]:
        return [task["name"] for task in project.json("tasks", workflow_id, *words)]

    assert names() == ["a", "b", "c", "d"]
    assert names("--status", "ready") == ["a"]
    assert names("--queue", "gpu") == ["c"]
    assert names("--prefix", "b") == ["b"]
    assert names("--limit", "0") == ["a", "b", "c", "d"]
    cut = project.call("tasks", workflow_id, "--limit", "2")
    assert "showing first 2" in cut.stderr
    assert cut.stdout.splitlines()[0].split() == ["Task", "Status", "Queue", "Deps", "Error"]


def test_tasks_of_several_runs_have_headings(project) -> None:
    one, two = project.submit(), project.submit()
    text = project.call("tasks", one, two).stdout

    assert f"{one}:\n" in text
    assert f"{two}:\n" in text
    assert {task["workflow_id"] for task in project.json("tasks")} == {one, two}


def test_summary_counts_runs_and_tasks(project) -> None:
    project.submit()
    document = project.json("summary")

    assert document == {
        "workflows": {"pending": 1},
        "total_tasks": 4,
        "completed_tasks": 0,
        "running_tasks": 0,
        "failed_tasks": 0,
        "pending_tasks": 4,
        "skipped_tasks": 0,
    }
    assert "0% complete — 4 total tasks" in project.call("summary").stdout


def test_logs_of_all_tasks_have_headings(project) -> None:
    project.write("flows.py", SCRIPT)
    project.call("run", "flows.py:sums", "--id", "r", "--no-progress")

    assert project.call("logs", "r").stdout.count("==> add") == 3
    assert project.call("logs", "r", "add").stdout == "adding 0 1\n"
    assert "no task 'ad'" in project.call("logs", "r", "ad", code=1).stderr
    assert "has written nothing" in project.call("logs", "r", "total").stderr


def test_watch_ends_with_the_final_state(project) -> None:
    project.write("f.yaml", project.failing)
    project.call("run", "f.yaml", "--id", "f", "--no-progress", code=1)

    assert project.call("watch", "f", code=1).stdout.splitlines()[-1] == "Workflow f reached terminal state: failed."


# --- changing


def test_cancel_of_a_run_that_nobody_drives(project) -> None:
    project.submit(project.diamond, "--id", "w1")

    assert project.call("cancel", "w1").stdout.startswith("Cancellation requested for workflow w1 in ")
    assert project.json("status", "w1")["status"] == "cancelled"
    assert "already" in project.call("cancel", "w1").stdout


def test_cancel_json(project) -> None:
    project.submit(project.diamond, "--id", "w1")

    document = project.json("cancel", "w1")

    assert document == {"workflow_id": "w1", "cancel_requested": True, "target": str(project.folder / ".dagkit")}


def test_retry_goes_on_with_a_run_that_was_driven_by_a_command_like_this(project) -> None:
    project.write("f.yaml", project.failing)
    project.call("run", "f.yaml", "--id", "f", "--no-progress", code=1)
    project.write("repaired", "")

    result = project.call("retry", "f")

    assert "reset 2 task(s) → 1 now ready, 1 still pending." in result.stdout
    assert project.json("status", "f")["status"] == "completed"
    assert "no tasks to retry" in project.call("retry", "f").stdout


def test_retry_of_a_submitted_run_only_resets(project) -> None:
    project.submit(project.diamond, "--id", "w1")
    project.call("cancel", "w1")

    assert project.json("retry", "w1") == {"reset": 4, "now_ready": 1, "still_pending": 3}
    assert project.json("status", "w1")["status"] == "pending"


def test_rerun_says_in_numbers_what_it_will_do(project) -> None:
    project.write("d.yaml", project.diamond)
    project.call("run", "d.yaml", "--id", "d", "--no-progress")

    refused = project.call("rerun", "d", "b", stdin="n\n", code=130)
    assert "run 1 task and the 1 that depend on them again?" in refused.stderr
    assert "2 tasks will run again" in project.call("rerun", "d", "b", "--yes").stdout
    assert project.json("status", "d")["completed"] == 4


def test_purge_deletes_what_is_over_after_asking(project) -> None:
    project.write("d.yaml", project.diamond)
    project.call("run", "d.yaml", "--id", "over", "--no-progress")
    project.submit(project.diamond, "--id", "active")

    assert "delete 1 run with 4 tasks?" in project.call("purge", stdin="n\n", code=130).stderr
    assert project.call("purge", "--yes").stdout == "Deleted 1 run, 4 tasks.\n"
    assert [run["workflow_id"] for run in project.json("list")] == ["active"]
    assert "cancel it first" in project.call("purge", "active", "--yes", code=2).stderr
    assert project.json("purge", "--all", "--yes")["workflows"] == 1
    assert project.call("purge").stdout == "Nothing to purge.\n"


# --- diagnosing


def test_explain_names_what_holds_up_the_most(project) -> None:
    project.write("f.yaml", project.failing)
    project.call("run", "f.yaml", "--id", "f", "--no-progress", code=1)

    (blocker,) = project.json("explain", "f")["blockers"]
    task = project.json("explain", "f", "--task", "after")

    assert (blocker["task"], blocker["status"], blocker["blocks"]) == ("bad", "failed", 1)
    assert (task["status"], task["failed_dependencies"]) == ("upstream_failed", ["bad"])
    assert "bad" in project.call("explain", "f").stdout


def test_explain_says_what_a_pending_task_waits_for(project) -> None:
    project.submit(project.diamond, "--id", "w1")

    assert project.json("explain", "w1", "--task", "d")["waits_for"] == ["b", "c"]
    assert "dagkit coordinator" in project.json("explain", "w1", "--task", "a")["reason"]


@pytest.mark.parametrize("words", [["nothing"], ["w1", "--task", "nothing"]])
def test_explain_of_what_is_not_there_is_no_failure(project, words: list[str]) -> None:
    project.submit(project.diamond, "--id", "w1")

    assert project.json("explain", *words)["status"] == "missing"


# --- serving


def test_the_lease_of_a_coordinator_that_is_gone_can_be_broken(project) -> None:
    from dagkit.stores import open_store

    assert project.call("coordinator", "break-lease").stdout == "No coordinator holds the lease.\n"
    store = open_store(project.folder / ".dagkit")
    assert store.acquire_lease("coordinator", "coordinator (host-b) #1.2", 60)

    assert (
        "break the lease of coordinator (host-b)?"
        in project.call("coordinator", "break-lease", stdin="n", code=130).stderr
    )
    project.call("coordinator", "break-lease", "--yes")
    assert store.lease("coordinator") is None
    store.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["worker"], "Missing argument 'QUEUE'"),
        (["worker", "q", "--slots", "0"], "--slots: must be at least 1"),
        (["worker", "q", "--grace", "soon"], "'soon' is not a duration"),
        (["coordinator", "--batch-size", "many"], "--batch-size: 'many'"),
        (["coordinator", "--target", "moon"], "no target 'moon'"),
    ],
)
def test_mistakes_in_the_options_of_daemons(project, words: list[str], said: str) -> None:
    assert said in project.call(*words, code=2).stderr


# --- setting up


def test_config_show_says_where_each_value_comes_from(project) -> None:
    project.write("dagkit.toml", "[worker]\nslots = 3\n")
    document = project.json("config", "show")

    assert document["worker"]["slots"] == 3
    assert document["sources"]["worker.slots"] == f"config {project.folder}/dagkit.toml"
    assert document["config_path"] == f"{project.folder}/dagkit.toml"
    assert re.search(r"worker\.slots +3 +config ", project.call("config").stdout)


def test_config_init_writes_a_file_that_is_valid(project) -> None:
    project.call("config", "init")

    assert "exists; --force" in project.call("config", "init", code=2).stderr
    assert project.json("config")["config_path"] == f"{project.folder}/dagkit.toml"


# --- drawing and exporting


def test_graph_draws_in_every_form(project) -> None:
    project.write("d.yaml", project.diamond)

    assert "a" in project.call("graph", "d.yaml").stdout
    assert project.call("graph", "d.yaml", "--format", "mermaid").stdout.startswith("flowchart")
    project.call("graph", "d.yaml", "-o", "out.svg")
    assert (project.folder / "out.svg").read_text().startswith("<svg")
    assert "no drawing" in project.call("graph", "d.yaml", "-o", "out.pdf", code=2).stderr


def test_graph_by_dot_is_for_those_who_have_it(project, monkeypatch) -> None:
    project.write("d.yaml", project.diamond)
    fake = project.folder / "dot"
    fake.write_text("#!/bin/sh\necho '<svg>by dot</svg>'\n")
    fake.chmod(0o755)

    monkeypatch.setenv("PATH", f"{project.folder}:/usr/bin:/bin")
    assert "by dot" in project.call("graph", "d.yaml", "--engine", "dot", "--format", "svg").stdout
    fake.unlink()
    monkeypatch.setenv("PATH", str(project.folder))
    assert "not installed" in project.call("graph", "d.yaml", "--engine", "dot", "--format", "svg", code=2).stderr
    assert "--format svg" in project.call("graph", "d.yaml", "--engine", "dot", code=2).stderr


def test_graph_of_a_run_shows_its_states(project) -> None:
    project.write("d.yaml", project.diamond)
    project.call("run", "d.yaml", "--id", "d", "--no-progress")

    assert "✓" in project.call("graph", "d").stdout


def test_export_writes_what_can_be_submitted_again(project) -> None:
    project.write("flows.py", SCRIPT)
    project.call("export", "flows.py:sums", "-o", "sums.yaml")

    assert project.json("run", "sums.yaml")["result"] == {"sum": 6}
    assert '"name": "sums"' in project.call("export", "flows.py:sums", "--format", "json").stdout


def test_plan_says_what_would_run(project) -> None:
    project.write("flows.py", SCRIPT)

    assert "add" in project.call("plan", "flows.py:sums").stdout
    assert project.json("plan", "flows.py:sums")["tasks"] == 4


# --- words of the diagnosis


def test_doctor_prints_each_check_with_what_to_do(project) -> None:
    project.submit(project.diamond)
    lines = project.call("doctor", code=1).stdout.splitlines()

    place = next(number for number, line in enumerate(lines) if line.startswith("fail  coordinator: no coordinator"))
    assert lines[place + 1] == "      → start `dagkit coordinator`"
    assert re.fullmatch(r"\d+ pass, \d+ warn, 1 fail", lines[-1])


def test_explain_in_words(project) -> None:
    text = "name: x\ntasks: [{name: a}, {name: b, depends_on: [a], dep_policy: any, condition: inputs.a.x > 1}]\n"
    project.submit(text, "--id", "w1")

    run = project.call("explain", "w1").stdout
    task = project.call("explain", "w1", "--task", "b").stdout

    assert "driven by nobody" in run
    assert re.search(r"a +○ ready +1 task +may run; waits for somebody to drive the run", run)
    assert task.splitlines() == ["b  · pending  waits for a", "  policy: any", "  condition: inputs.a.x > 1"]
    assert "no run 'nothing'" in project.call("explain", "nothing").stdout


def test_explain_names_the_limit_that_a_ready_task_waits_for(project) -> None:
    from dagkit.stores import open_store

    project.submit("name: x\nmax_parallelism: 1\ntasks: [{name: a}, {name: b}]\n", "--id", "w1")
    store = open_store(project.folder / ".dagkit")
    stored = store.load("w1")
    tasks = {"a": {"state": "running", "attempt_no": 1}, "b": {"state": "ready"}}
    store.replace("w1", stored.definition, {**stored.state, "workflow_state": "running", "tasks": tasks}, stored.etag)
    assert store.acquire_lease("run/w1", "coordinator (host-b) #1.0", 60)

    assert project.json("explain", "w1", "--task", "b")["reason"] == "may run; waits for room: max_parallelism is 1"
    assert "attempt 1 of 1, handed to queue default" in project.json("explain", "w1", "--task", "a")["reason"]
    assert "driven by coordinator (host-b)" in project.call("status", "w1").stdout
    store.close()
