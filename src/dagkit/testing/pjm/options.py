"""Options of pjsub: from its command line and from the `#PJM` lines of a script (facts: pjm 1.3)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any, Final

__all__ = ["Refusal", "parse", "script_words"]

#: Options with a value, and the name under which it is kept.
_VALUES: Final = {
    "-L": "rsc",
    "--rsc-list": "rsc",
    "--mpi": "mpi",
    "-g": "group",
    "--group": "group",
    "-N": "name",
    "--name": "name",
    "-o": "out",
    "--out": "out",
    "-e": "err",
    "--err": "err",
    "--spath": "spath",
    "-x": "environ",
    "--at": "at",
    "-m": "mail",
    "--mail-list": "mail_list",
    "--comment": "comment",
    "-p": "priority",
    "--llio": "llio",
    "--sparam": "sparam",
    "-z": "show",
}
_FLAGS: Final = {
    "-j": "join",
    "-s": "stats",
    "-S": "all_stats",
    "-X": "all_environ",
    "--restart": "restart",
    "--norestart": "norestart",
    "--bulk": "bulk",
    "--step": "step",
    "--mswk": "mswk",
    "--interact": "interact",
}
#: An error inside a script (facts: pjm 1.3).
_COMMAND_LINE_ONLY: Final = {
    "--no-check-directory": "any_directory",
    "--no-check-gfscache": "any_gfscache",
    "--all-mount-gfscache": "all_gfscache",
}
_PAIRS: Final = ("rsc", "mpi", "llio", "environ")
_PAIR: Final = re.compile(r"([\w-]+)(?:=(.*))?", re.DOTALL)


class Refusal(Exception):
    """pjsub takes something not; the text is what it says."""


def parse(words: Sequence[str], *, in_script: bool = False) -> tuple[dict[str, Any], list[str]]:
    """Options by name, and what is left: the script and its arguments. `Refusal` for an option that is none."""
    found: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest[0]
        if not word.startswith("-") or word == "-":
            break
        rest.pop(0)
        name, is_joined, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if name in _VALUES:
            if not is_joined:
                if not rest:
                    raise Refusal(f"[ERR.] PJM 0049 pjsub Option argument is invalid. {name}")
                value = rest.pop(0)
            _add(found, _VALUES[name], value)
        elif name in _FLAGS:
            found[_FLAGS[name]] = True
        elif name in _COMMAND_LINE_ONLY and not in_script:
            found[_COMMAND_LINE_ONLY[name]] = True
        else:
            raise Refusal(f"[ERR.] PJM 0049 pjsub Option argument is invalid. {name}")
    return found, rest


def _add(found: dict[str, Any], name: str, value: str) -> None:
    if name not in _PAIRS:
        found[name] = value
        return
    pairs = found.setdefault(name, {})
    for part in value.split(","):
        match = _PAIR.fullmatch(part)
        if match is None:
            raise Refusal(f"[ERR.] PJM 0049 pjsub Option argument is invalid. {part}")
        pairs[match[1]] = match[2] if match[2] is not None else ""


def script_words(text: str) -> list[str]:
    """The words of the `#PJM` lines up to the first line that is no comment."""
    words: list[str] = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        if line.startswith("#PJM"):
            try:
                words += shlex.split(line[4:], comments=True)
            except ValueError:
                raise Refusal(f"[ERR.] PJM 0049 pjsub Option argument is invalid. {line[4:].strip()}") from None
    return words


def merged(script: dict[str, Any], line: dict[str, Any]) -> dict[str, Any]:
    """Both; the command line wins, key by key."""
    found = {**script, **line}
    for name in _PAIRS:
        if name in script and name in line:
            found[name] = {**script[name], **line[name]}
    return found
