"""`dagkit validate`, `plan`, `export` and `graph`: what there is to say about a workflow before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dagkit.cli.failing import FAILED
from dagkit.cli.session import Session, command, emit, json_option, say
from dagkit.cli.sources import UserCodeFailed, is_source, load_flow, read_parameters
from dagkit.errors import DagkitError, DefinitionError, Problem, UsageError
from dagkit.wording import count, plain

if TYPE_CHECKING:
    from dagkit.model.spec import WorkflowSpec

__all__ = ["commands"]

_FORMATS = {".svg": "svg", ".dot": "dot", ".gv": "dot", ".mmd": "mermaid", ".mermaid": "mermaid", ".txt": "text"}


@command("validate")
@click.argument("files", nargs=-1, required=True, metavar="FILES...")
@click.option("--portable", is_flag=True, help="Also name what ai4s-jobq would not read, or read otherwise.")
@json_option
def validate(_: Session, files: Sequence[str], portable: bool, as_json: bool) -> int:
    """Check workflow files; needs no store. Exit code 1 if any fails."""
    checks = [_check(file, portable) for file in files]
    if as_json:
        emit(checks)
    else:
        for check in checks:
            _say_check(check)
    return 0 if all(check["ok"] for check in checks) else FAILED


def _check(file: str, portable: bool) -> dict[str, Any]:
    problems: list[Problem] = []
    hints: list[Problem] = []
    tasks = 0
    try:
        spec = load_flow(file).spec
        tasks, hints = len(spec.tasks), spec.hints
        problems = spec.portable_problems() if portable else []
    except DefinitionError as error:
        problems = list(error.problems)
    except (DagkitError, UserCodeFailed) as error:
        problems = [Problem(str(error).removeprefix(f"{file}: "))]
    return {
        "file": file,
        "ok": not problems,
        "tasks": tasks,
        "problems": [_problem(problem) for problem in problems],
        "hints": [_problem(hint) for hint in hints],
    }


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "text": str(problem),
        "message": problem.message,
        "field": problem.field,
        "task": problem.task,
        "index": problem.index,
        "line": problem.line,
    }


def _say_check(check: dict[str, Any]) -> None:
    hints = [f"  hint: {plain(hint['text'])}" for hint in check["hints"]]
    if check["ok"]:
        click.echo(f"{click.style('OK', fg='green')}    {plain(check['file'])}  ({count(check['tasks'], 'task')})")
        for hint in hints:
            say(hint)
        return
    lines = [f"  {plain(problem['text'])}" for problem in check["problems"]]
    head = f"{click.style('FAIL', fg='red')}  {plain(check['file'])}  {count(len(lines), 'problem')}"
    say("\n".join([head, *lines, *hints]))


@command("plan")
@click.argument("source", metavar="FILE|MODULE:NAME")
@click.option("-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help="Argument of a workflow function.")
@click.option("--target", metavar="TARGET", help="Where it would run. Default: the configured target.")
@click.option("--scripts", is_flag=True, help="Print the commands and job scripts that PJM or Slurm would be given.")
@json_option
def plan(
    session: Session, source: str, params: Sequence[str], target: str | None, scripts: bool, as_json: bool
) -> None:
    """What would run: tasks per group and queue, sizes, what is reused and why."""
    session.export()
    flow = load_flow(source, read_parameters(params))
    if scripts:
        _say_scripts(flow.spec, target or session.settings.default_target, session)
        return
    made = flow.plan(target or session.settings.default_target, store=session.store)
    if as_json:
        emit({"name": made.name, "tasks": made.tasks, **asdict(made)})
    else:
        click.echo(plain(str(made), keep_lines=True))


def _say_scripts(spec: WorkflowSpec, target: str, session: Session) -> None:
    from dagkit.cli.scripts import scripts_of_workflow

    found = list(scripts_of_workflow(spec, target, session.settings))
    for title, text in found:
        click.echo(f"{plain(title)}\n{text}")
    if not found:
        say(f"no queue of target {target} is served by PJM or Slurm")


@command("export")
@click.argument("source", metavar="FILE|MODULE:NAME|RUN")
@click.option("-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help="Argument of a workflow function.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="File to write. Default: stdout.")
@click.option("--format", "form", type=click.Choice(["yaml", "json"]), help="Default: by the file's name, else yaml.")
@click.option("--portable", is_flag=True, help="For ai4s-jobq: only standard fields.")
def export(
    session: Session,
    source: str,
    params: Sequence[str],
    output: Path | None,
    form: str | None,
    portable: bool,
) -> None:
    """Write a workflow as YAML or JSON, with the payloads it needs beside the file."""
    form = form or ("json" if output is not None and output.suffix == ".json" else "yaml")
    if not is_source(source):
        _write(_text(session.run(source).spec, form, portable), output)
        return
    flow = load_flow(source, read_parameters(params))
    text = flow.to_json(output) if form == "json" else flow.to_yaml(output, portable=portable)
    if output is None:
        click.echo(text, nl=not text.endswith("\n"))
        if flow.payloads:
            say(f"note: {count(len(flow.payloads), 'payload')} that it refers to are only written with --output FILE")


def _text(spec: WorkflowSpec, form: str, portable: bool) -> str:
    return spec.to_json() if form == "json" else spec.to_yaml(portable=portable)


@command("graph")
@click.argument("source", metavar="FILE|MODULE:NAME|RUN")
@click.option("-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help="Argument of a workflow function.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="File to write. Default: stdout.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "svg", "mermaid", "dot"]),
    help="Default: by the file's name, else text.",
)
@click.option(
    "--engine",
    type=click.Choice(["own", "dot"]),
    default="own",
    show_default=True,
    help="Who lays out an SVG: dagkit, or the dot program of Graphviz, if it is installed.",
)
def graph(
    session: Session, source: str, params: Sequence[str], output: Path | None, form: str | None, engine: str
) -> None:
    """Draw a workflow, or a run with the states of its tasks."""
    from dagkit.notebook import dot
    from dagkit.notebook import graph as drawing

    states = None
    if is_source(source):
        spec = load_flow(source, read_parameters(params)).spec
    else:
        run = session.run(source)
        spec, states = run.spec, {task.name: task.state for task in run.tasks()}
    form = form or (_format_of(output) if output is not None else "text")
    if engine == "dot" and form != "svg":
        raise UsageError(f"--engine dot draws SVG, not {form}: give --format svg or -o FILE.svg")
    if engine == "dot":
        _write(dot.render(drawing.dot(spec, states)).decode(), output)
    else:
        _write(getattr(drawing, form)(spec, states), output)


def _format_of(path: Path) -> str:
    if path.suffix not in _FORMATS:
        raise UsageError(f"{path}: no drawing is known by {path.suffix!r}; use {', '.join(_FORMATS)} or --format")
    return _FORMATS[path.suffix]


def _write(text: str, output: Path | None) -> None:
    if output is None:
        click.echo(text, nl=not text.endswith("\n"))
        return
    try:
        output.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror or error}") from None
    say(f"wrote {output}")


commands = {"validate": validate, "plan": plan, "export": export, "graph": graph}
