"""What a task is made from: a function or a command, its name, and what it accepts."""

from __future__ import annotations

import functools
import inspect
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from dagkit.errors import WrongCall
from dagkit.tracing.signature import Signature

__all__ = ["Command", "Declaration", "command_name", "declare", "plain_name"]


@dataclass(frozen=True, slots=True)
class Command:
    """A shell command as it was declared."""

    cmd: str
    env: dict[str, str]
    cwd: str | None
    bg_dirsync_to: str | None = None


class Declaration:
    """One `@task` or `shell(...)`. Copies made by `.options` share it; the tasks made from it are one template."""

    __slots__ = ("command", "fn", "name", "signature")

    name: str
    """What the template is called: the function's name, or the one that was given where it was declared."""

    def __init__(self, fn: Callable[..., Any], name: str, command: Command | None = None) -> None:
        self.fn, self.name, self.command = fn, name, command
        self.signature = Signature(fn)


def declare(fn: Any, given: str | None = None) -> Declaration:
    """The declaration of a function, called `given` if that is a name and no template.

    `WrongCall` for what is no function, with what to do instead.
    """
    if isinstance(fn, staticmethod):
        fn = fn.__func__
    name = _name(fn)
    if fault := _fault(fn, name):
        raise WrongCall(f"@task on {name}: {fault}")
    return Declaration(fn, plain_name(given) or name.strip("<>"))


def plain_name(given: object) -> str | None:
    """A name that was given, unless it is a template (or no name at all, which is found elsewhere)."""
    return given if isinstance(given, str) and given.strip() and "{" not in given else None


def _name(fn: Any) -> str:
    if isinstance(fn, functools.partial):
        return _name(fn.func)
    return getattr(fn, "__name__", None) or type(fn).__name__


def _fault(fn: Any, name: str) -> str | None:
    if isinstance(fn, classmethod):
        return "a class method cannot be a task; make it a function, or a static method"
    if isinstance(fn, type):
        return "a class cannot be a task; write a function that makes and returns the object"
    if not callable(fn):
        return f"a task is made from a function, not from {type(fn).__name__}"
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        return "a generator cannot be a task, because what it yields cannot travel; return a list"
    if _is_method(fn):
        return (
            "a method cannot be a task, because it needs its object; make it a function that takes the object, "
            "or a static method"
        )
    return None


def _is_method(fn: Any) -> bool:
    """A bound method, or a function in the body of a class whose first parameter is `self` or `cls`."""
    if inspect.ismethod(fn):
        return True
    owner = getattr(fn, "__qualname__", "").rpartition(".")[0]
    code = getattr(fn, "__code__", None)
    return bool(owner and not owner.endswith("<locals>") and code and code.co_varnames[:1] in (("self",), ("cls",)))


_INTERPRETERS: Final = ("python", "python3", "bash", "sh", "zsh", "Rscript", "julia", "perl", "node")


def command_name(cmd: str) -> str:
    """What a command is called without a name of its own: its program, or the script that an interpreter is given."""
    try:
        words = shlex.split(cmd, comments=True)
    except ValueError:
        return "shell"
    while words and "=" in words[0] and words[0].partition("=")[0].isidentifier():
        words.pop(0)
    if len(words) > 1 and PurePosixPath(words[0]).name in _INTERPRETERS and not words[1].startswith("-"):
        words.pop(0)
    stem = PurePosixPath(words[0]).stem if words else ""
    plain = "".join(char if char.isalnum() or char in "._-" else "-" for char in stem).strip("-._")
    return plain[:60] or "shell"
