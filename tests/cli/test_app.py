"""The program as a whole: commands, places, exit codes, errors."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from dagkit.cli.app import COMMANDS, cli
from dagkit.cli.failing import exit_code
from dagkit.errors import BackendError, ConfigError, RunBusy, TaskFailed, UnknownRun, WorkflowExists


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_and_says_what_the_listing_says_or_more(name: str) -> None:
    command = importlib.import_module(f"dagkit.cli.{COMMANDS[name].module}").commands[name]

    assert command.name == name
    assert command.help


def test_help_lists_every_command(project) -> None:
    text = project.call("--help").stdout

    assert [name for name in COMMANDS if f"  {name} " not in text] == []


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['dagkit', '--help']\n"
        "from dagkit.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'pydantic', 'rich', 'yaml', 'cloudpickle', 'psutil', 'dagkit.run', 'dagkit.stores.sqlite'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    "words", [["statu"], ["--sto", "x"], ["cancel"], ["tasks", "--status", "broken"], ["list", "--recent", "0"]]
)
def test_wrong_use_is_one_line_and_exit_code_2(project, words: list[str]) -> None:
    stderr = project.call(*words, code=2).stderr

    assert stderr.startswith("error: ")
    assert stderr.count("\n") == 1


def test_a_misspelt_command_is_recognised(project) -> None:
    assert "Did you mean 'status'?" in project.call("statu", code=2).stderr


def test_an_unknown_run_is_a_plain_error_with_exit_code_1(project) -> None:
    project.submit()

    assert project.call("status", "nothing", code=1).stderr.startswith("error: no run 'nothing'")


def test_the_store_is_chosen_before_or_after_the_command(project) -> None:
    project.call("--store", "one", "submit", str(project.write("f.yaml", "name: f\ntasks: [{name: a}]\n")))

    assert "f" in project.call("list", "--store", "one").stdout
    assert project.call("list", "--store", "two").stdout == "No workflows found.\n"
    assert (project.folder / "one" / "state.db").exists()


def test_a_store_that_is_no_store_is_an_error_not_a_traceback(project) -> None:
    stderr = project.call("list", "--store", "ftp://somewhere", code=2).stderr

    assert stderr.startswith("error: ")


@pytest.mark.parametrize("location", ["AccountKey=secret/x", "sb://ns/prefix"])
def test_a_connection_string_cannot_be_the_positional(project, location: str) -> None:
    assert "STORAGE/PREFIX" in project.call(location, "list", code=2).stderr


@pytest.mark.parametrize("words", [["submit", "x.yaml"], ["worker", "q"], ["coordinator"]])
def test_work_is_not_left_in_a_store_that_nobody_else_can_open(project, words: list[str]) -> None:
    project.write("x.yaml", "name: x\ntasks: [{name: a}]\n")

    assert "memory: store ends with this process" in project.call(*words, "--store", "memory:", code=2).stderr


def test_the_shorthand_goes_before_the_command(project) -> None:
    assert project.json("acct/proj", "config")["store"] == "azure://acct/proj"


def test_a_location_without_a_command_is_wrong_use(project) -> None:
    assert "command is missing" in project.call("acct/proj", code=2).stderr


def test_a_mistake_in_the_configuration_is_named(project) -> None:
    project.write("dagkit.toml", "slot = 3")

    assert "unknown key 'slot'" in project.call("list", code=2).stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (UnknownRun("x"), 1),
        (WorkflowExists("x"), 1),
        (RunBusy("x"), 1),
        (BackendError("x"), 1),
        (TaskFailed("t", "x"), 1),
    ],
)
def test_exit_codes(error: Exception, code: int) -> None:
    assert exit_code(error) == code  # type: ignore[arg-type]


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    """`dagkit version | head -1` used to end with a traceback of a broken pipe."""
    program = [sys.executable, "-m", "dagkit.cli", "completion", "bash"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(program, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)

    assert done.stderr == ""


def test_no_colour_when_nobody_wants_it(project) -> None:
    project.submit()

    assert "\x1b" not in project.call("list").stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(project, shell: str) -> None:
    assert "_DAGKIT_COMPLETE" in project.call("completion", shell).stdout


def test_commands_are_completed() -> None:
    from click.shell_completion import ShellComplete

    completed = ShellComplete(cli, {}, "dagkit", "_DAGKIT_COMPLETE").get_completions([], "su")

    assert {item.value for item in completed} == {"submit", "summary"}


def test_runs_are_completed_with_what_they_are(project) -> None:
    from click.shell_completion import ShellComplete

    one = project.submit()
    completed = ShellComplete(cli, {}, "dagkit", "_DAGKIT_COMPLETE").get_completions(["status"], one[:3])

    assert [(item.value, item.help) for item in completed] == [(one, "diamond: pending")]


def test_versions_are_worth_pasting(project) -> None:
    versions = project.json("version")

    assert versions["click"] == metadata.version("click")
    assert "dagkit" in project.call("--version").stdout
