"""`%dagkit` in a real IPython shell, and our errors as a cell shows them."""

from __future__ import annotations

import warnings

import pytest

from dagkit import task, workflow
from dagkit.errors import UsageError


@pytest.fixture(scope="module")
def ipython():
    from IPython.testing.globalipapp import start_ipython

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shell = start_ipython()
    shell.history_manager.enabled = False
    yield shell
    shell.history_manager.end_session()


@pytest.fixture
def shell(ipython, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ipython.run_line_magic("load_ext", "dagkit")
    yield ipython
    ipython.run_line_magic("unload_ext", "dagkit")


@task
def speak(word):
    print(word, end="\n" if word else "")
    if word == "boo":
        raise ValueError("no ghosts here")
    return word


@workflow
def talk(word):
    return speak(word)


def test_it_lists_runs_and_reads_logs(shell, capsys):
    run = talk("hello").run(id="greeting", progress=False)
    shell.user_ns["mine"] = run

    assert [row["run"] for row in shell.run_line_magic("dagkit", "list")] == ["greeting"]
    assert shell.run_line_magic("dagkit", "status").id == "greeting"
    shell.run_line_magic("dagkit", "logs greet speak")
    shell.run_line_magic("dagkit", "logs mine speak")
    assert capsys.readouterr().out == "hello\nhello\n"


@pytest.mark.parametrize("line", ["dance", "logs", "logs a b c", "list a b"])
def test_what_it_does_not_understand_it_answers_with_what_it_does(shell, line):
    with pytest.raises(UsageError, match="%dagkit list"):
        shell.run_line_magic("dagkit", line)


def test_a_run_that_is_not_there_is_said(shell):
    talk("hello").run(id="greeting", progress=False)

    with pytest.raises(UsageError, match="nobody"):
        shell.run_line_magic("dagkit", "status nobody")


def test_an_error_in_a_cell_is_the_users_line_and_the_message(shell, capsys):
    shell.user_ns["run"] = talk("boo").run(progress=False)

    shell.run_cell("def ask():\n    return run.result()\nask()", store_history=False)

    shown = capsys.readouterr()
    text = shown.out + shown.err
    assert "return run.result()" in text
    assert "TaskFailed: speak failed (attempt 1 of 1, user): ValueError: no ghosts here" in text
    assert "src/dagkit/run.py" not in text
    assert len(text.splitlines()) < 25
    shell.run_line_magic("dagkit", "traceback")
    assert "dagkit/run.py" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("greet()", "greet(name): missing a required argument: 'name'"),
        ("greet.options(retrys=3)", "there is no option 'retrys'. Did you mean 'retries'?"),
        ("hello(1, 2)", "hello(name): too many positional arguments"),
        ("task(3)", "@task"),
    ],
)
def test_a_wrong_call_in_a_cell_is_the_users_line_and_the_message(shell, capsys, cell, said):
    """A forgotten argument showed four frames of dagkit's, and the sentence below them."""
    shell.run_cell("from dagkit import task, workflow\n@task\ndef greet(name): return name", store_history=False)
    shell.run_cell("@workflow\ndef hello(name): return greet(name)", store_history=False)

    shell.run_cell(cell, store_history=False)

    shown = capsys.readouterr()
    text = shown.out + shown.err
    assert said in text
    assert cell in text
    assert "src/dagkit" not in text
    assert len(text.splitlines()) < 8


def test_of_a_task_that_wrote_nothing_that_is_said(shell, capsys):
    shell.user_ns["run"] = talk("").run(progress=False, wait=False)
    shell.user_ns["run"].wait()

    shell.run_line_magic("dagkit", "logs run speak")

    assert capsys.readouterr().out == "(speak has written nothing)\n"


def test_errors_display_as_a_table_that_opens(shell):
    run = talk("boo").run(progress=False)

    page, text = run.errors()._repr_html_(), repr(run.errors())

    assert "<summary>" in page
    assert "no ghosts here" in page
    assert text == "✗ speak  ValueError: no ghosts here  (attempt 1 of 1)"


def test_outside_of_notebooks_a_run_is_text(shell, capsys):
    shell.user_ns["run"] = talk("hello").run(progress=False)

    shell.run_cell("run", store_history=False)

    assert "talk" in capsys.readouterr().out


def test_after_an_interrupt_of_a_cell_that_waits_the_message_says_how_to_go_on(shell, capsys):
    from dagkit.progress import LineProgress  # noqa: F401 - what the cell shows is text here

    run = talk("hello").run(wait=False)
    run.driver.let_go()

    assert "go on with dagkit.attach(" in capsys.readouterr().err
    assert run.resume().result() == "hello"
