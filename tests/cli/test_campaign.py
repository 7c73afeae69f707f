"""What a campaign used, what went wrong in it, and putting it right by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dagkit.testing import FakeSlurm

SWEEP = """\
name: sweep
tasks:
- {name: fit-0, template: fit, kwargs: {cmd: "true"}}
- {name: fit-1, template: fit, kwargs: {cmd: "sleep 0.05"}}
- {name: bad, kwargs: {cmd: "echo said so; test -e repaired"}}
- {name: after, depends_on: [bad], kwargs: {cmd: "true"}}
"""


@pytest.fixture
def swept(project):
    project.write("sweep.yaml", SWEEP)
    project.call("run", "sweep.yaml", "--id", "s", "--no-progress", code=1)
    return project


def test_usage_by_template(swept) -> None:
    rows = {row["template"]: row for row in swept.json("usage", "s")}
    assert (rows["fit"]["tasks"], rows["fit"]["attempts"]) == (2, 2)
    assert rows["fit"]["time_s_max"] >= 0.05

    said = swept.call("usage", "s", "--template", "fit").stdout
    head, line = said.splitlines()
    assert " ".join(head.split()).startswith("template tasks attempts time median p95 max processor median max memory")
    assert line.split()[:3] == ["fit", "2", "2"]
    assert "MiB" in line
    assert "bad" not in said
    assert (
        "no template 'fot'; there are fit, bad, after" in swept.call("usage", "s", "--template", "fot", code=2).stderr
    )


def test_usage_of_tasks_that_were_called_with_something(project) -> None:
    calls = [{"args": ["a", 9]}, {"args": ["b"], "kwargs": {"width": 9, "placeholder": "-"}}, {"args": ["a", 8]}]
    tasks = [
        {
            "name": f"fit-{n}",
            "template": "fit",
            "kwargs": {"cmd": "x", "call": {"function": "textwrap:shorten", **call}},
        }
        for n, call in enumerate(calls)
    ]
    tasks.append({"name": "sh", "kwargs": {"cmd": "true", "env": {"MODE": "fast"}}})
    project.write("sweep.yaml", yaml.safe_dump({"name": "w", "tasks": tasks}))
    project.call("run", "sweep.yaml", "--id", "w", "--no-progress")

    def counted(*where: str) -> dict[str, int]:
        options = [word for one in where for word in ("--where", one)]
        return {row["template"]: row["tasks"] for row in project.json("usage", "w", *options)}

    assert counted("width=9") == {"fit": 2}
    assert counted("width=9", "text=a") == {"fit": 1}
    assert counted("placeholder=-") == {"fit": 1}
    assert counted("MODE=fast") == {"sh": 1}
    assert "no task was called with lr=7" in project.call("usage", "w", "--where", "lr=7", code=2).stderr
    assert "lr=0.1" in project.call("usage", "w", "--where", "lr", code=2).stderr


def test_resources_are_written_as_yaml(swept) -> None:
    found = yaml.safe_load(swept.call("resources", "s").stdout)
    assert set(found) == {"fit"}
    assert found["fit"]["runtime"] == "60s"
    assert found["fit"]["memory"] == "64M"

    swept.call("resources", "s", "-o", "found.yaml")
    assert yaml.safe_load((swept.folder / "found.yaml").read_text()) == found


def test_errors_newest_first_with_the_log(swept) -> None:
    (failure,) = swept.json("errors", "s")
    assert (failure["task"], failure["kind"], failure["attempts"]) == ("bad", "user", 1)
    assert "said so" in failure["log_tail"]
    said = swept.call("errors", "s").stdout
    assert said.startswith("✗ bad failed (attempt 1 of 1, user)")
    assert "\n\nLast lines of its log:\n" in said
    assert "No task has failed." in swept.call("errors", swept.submit(swept.diamond)).stdout


def test_a_task_is_set_completed_and_what_waited_for_it_goes_on(swept) -> None:
    said = swept.call("set-status", "s", "bad", "completed").stdout
    assert "1 task is completed now" in said
    assert swept.json("status", "s")["status"] == "completed"


def test_a_task_is_set_pending_with_what_depends_on_it(swept) -> None:
    (swept.folder / "repaired").touch()
    assert swept.json("set-status", "s", "bad", "pending") == {"changed": 2}
    assert swept.json("status", "s")["completed"] == 4


def test_reset_asks_and_runs_everything_again(swept) -> None:
    (swept.folder / "repaired").touch()
    assert "run everything again, 2 completed tasks too?" in swept.call("reset", "s", stdin="n\n", code=130).stderr
    assert "4 tasks will run again" in swept.call("reset", "s", "--yes").stdout
    assert swept.json("status", "s")["completed"] == 4


def test_limits_are_said_in_words_and_mistakes_named(swept) -> None:
    assert "runs at most 1 task at a time" in swept.call("limit", "s", "--max", "1").stdout
    assert "runs at most 3 tasks of fit at a time" in swept.call("limit", "s", "--max", "3", "--template", "fit").stdout
    assert "starts no more tasks" in swept.call("limit", "s", "--max", "0").stdout
    assert swept.json("limit", "s", "--reset") == {"workflow_id": "s", "template": None, "max": None}
    assert "say --max N, or --reset" in swept.call("limit", "s", code=2).stderr
    assert "no template 'fot'" in swept.call("limit", "s", "--max", "1", "--template", "fot", code=2).stderr


def test_config_set_changes_the_file_that_applies(project) -> None:
    project.call("config", "set", "worker.slots", "3")
    assert (project.folder / "dagkit.toml").read_text() == "[worker]\nslots = 3\n"
    assert project.json("config")["worker"]["slots"] == 3

    project.call("config", "init", "--force")
    project.call("config", "set", "slots", "2")
    assert "# slots = 4                    # local tasks" in (project.folder / "dagkit.toml").read_text()
    project.call("config", "set", "tracing", "on", "--path", "other.toml")
    assert (project.folder / "other.toml").read_text() == "tracing = true\n"


def test_config_set_names_what_is_wrong(project) -> None:
    assert "keys: store, target" in project.call("config", "set", "slots", code=2).stderr
    assert "Did you mean 'slots'" in project.call("config", "set", "slot", "1", code=2).stderr
    assert "no TOML file" in project.call("config", "set", "slots", "1", "--path", "x.yaml", code=2).stderr
    assert "takes no 'slots'" in project.call("config", "show", "slots", code=2).stderr


def test_usage_of_several_runs_together(swept) -> None:
    swept.call("run", "sweep.yaml", "--id", "s2", "--no-progress", code=1)
    rows = {row["template"]: row for row in swept.json("usage", "s", "s2")}
    assert rows["fit"]["tasks"] == 4


def test_errors_that_differ_in_numbers_only_are_one_group(project) -> None:
    tasks = "".join(f"- {{name: t-{k}, template: t, kwargs: {{cmd: exit {k}}}}}\n" for k in (3, 4, 5))
    project.write("many.yaml", f"name: many\ntasks:\n{tasks}- {{name: other, kwargs: {{cmd: exit 1}}}}\n")
    project.call("run", "many.yaml", "--id", "m", "--no-progress", code=1)

    first, second = project.json("errors", "m", "--grouped")
    assert (first["count"], first["template"], first["kind"], first["example"]) == (3, "t", "user", "t-3")
    assert (second["count"], second["template"]) == (1, "other")
    said = project.call("errors", "m", "--grouped", "--limit", "1").stdout
    assert said == "3 x t (user): the command ended with exit code 3\n  such as t-3\n"
    assert "No task has failed." in project.call("errors", project.submit(), "--grouped").stdout


def test_tasks_verbose_says_what_each_asks_for(project) -> None:
    project.write("r.yaml", 'name: r\ntasks: [{name: a, resources: {memory: 40G, cores: 2}, kwargs: {cmd: "true"}}]\n')
    run = project.call("submit", "r.yaml").stdout.strip()
    said = project.call("tasks", run, "-v").stdout
    assert "Asks for" in said
    assert "memory 40G, cores 2" in said
    assert "Asks for" not in project.call("tasks", run).stdout
    assert "Asks for" not in project.call("tasks", project.submit(), "-v").stdout


def test_plan_shows_the_arrays_that_slurm_would_be_given(
    project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", FakeSlurm(tmp_path / "slurm").environment["PATH"])
    project.write("dagkit.toml", '[targets.hpc]\ndefault = { executor = "slurm", partition = "night", pack = 2 }\n')
    tasks = [
        {"name": f"fit-{n}", "template": "fit", "kwargs": {"cmd": "echo secret"}, "resources": {"memory": "1500M"}}
        for n in range(5)
    ]
    project.write("sweep.yaml", yaml.safe_dump({"name": "w", "tasks": tasks}))

    said = project.call("plan", "sweep.yaml", "--target", "hpc", "--scripts").stdout

    assert "# fit on queue default\nsbatch SPOOL/fit.0123456789/script.sh\n" in said
    assert "#SBATCH --array=0-2" in said
    assert "#SBATCH --mem=1500M" in said
    assert "#SBATCH --partition=night" in said
    assert "secret" not in said


def test_suggested_resources_are_settings_of_the_next_run(swept, tmp_path) -> None:
    swept.call("resources", "s", "-o", "suggested.yaml")
    swept.call("run", "sweep.yaml", "--id", "again", "--no-progress", "--resources", "suggested.yaml", code=1)
    queued = swept.call("submit", "sweep.yaml", "--resources", "suggested.yaml").stdout.strip()

    for run in ("again", queued):
        tasks = yaml.safe_load(swept.call("export", run).stdout)["tasks"]
        asked = {one["name"]: one.get("resources", {}) for one in tasks}
        assert "memory" in asked["fit-0"]
        assert "memory" in asked["fit-1"]
        assert asked["bad"] == {}
    swept.write("wrong.yaml", "fot: {memory: 1G}\n")
    said = swept.call("run", "sweep.yaml", "--resources", "wrong.yaml", code=2).stderr
    assert "no template 'fot'. There are fit, bad, after" in said
