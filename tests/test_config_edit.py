"""Changing one setting of a file, with the rest of it left alone."""

from __future__ import annotations

import pytest

from dagkit.config.edit import with_setting
from dagkit.errors import ConfigError

FILE = """\
# Mine.
target = "queued"   # not "local", see #12

# slots = 4
[worker]  # on the nodes
grace_s = 5 # seconds
name = 1

[targets.x]
default = "local"
"""


@pytest.mark.parametrize(
    ("key", "value", "line", "comes_after"),
    [
        ("target", "local", 'target = "local"   # not "local", see #12', "# Mine."),
        ("slots", "3", "slots = 3", "# slots = 4"),
        ("worker.grace_s", "2m", 'grace_s = "2m" # seconds', "[worker]  # on the nodes"),
        ("worker.slots", "8", "slots = 8", "name = 1"),
        ("tracing", "yes", "tracing = true", 'target = "queued"   # not "local", see #12'),
        ("coordinator.idle_sleep_s", "0.25", "idle_sleep_s = 0.25", "[coordinator]"),
        ("store", 'a "b" \\ c', 'store = "a \\"b\\" \\\\ c"', 'target = "queued"   # not "local", see #12'),
        ("logging.level", "DEBUG", 'level = "DEBUG"', "[logging]"),
    ],
)
def test_the_line_is_where_people_look_for_it(key: str, value: str, line: str, comes_after: str) -> None:
    lines = with_setting(FILE, key, value).splitlines()
    assert lines[lines.index(line) - 1] == comes_after
    others = [one for one in FILE.splitlines() if one and one.split("=")[0] != line.split("=")[0]]
    assert [one for one in lines if one in others] == others


def test_an_empty_file_and_one_without_an_end_of_line() -> None:
    assert with_setting("", "slots", "2") == "slots = 2\n"
    assert with_setting("", "worker.slots", "2") == "[worker]\nslots = 2\n"
    assert with_setting("[worker]", "worker.slots", "2") == "[worker]\nslots = 2\n"


def test_the_table_of_a_pyproject() -> None:
    text = '[project]\nname = "x"\n'
    assert with_setting(text, "worker.slots", "2", table="tool.dagkit") == f"{text}\n[tool.dagkit.worker]\nslots = 2\n"


@pytest.mark.parametrize(
    ("text", "key", "value", "words"),
    [
        (FILE, "slot", "1", ["unknown key 'slot'", "Did you mean 'slots'"]),
        (FILE, "worker.slots", "many", ["worker.slots", "'many' is not a whole number"]),
        (FILE, "store", " ", ["store", "not a text"]),
        ("slots = [", "slots", "1", ["Invalid value"]),
        ("worker.slots = 1\n", "worker.slots", "2", ["cannot be changed without you", "to 2"]),
        ("worker = {slots = 1}\n", "worker.slots", "2", ["cannot be changed without you"]),
        ('a = """\nslots = 1\n"""\n', "slots", "2", ["cannot be changed without you"]),
    ],
)
def test_what_cannot_be_done_is_said_and_changes_nothing(text: str, key: str, value: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        with_setting(text, key, value)
    for word in words:
        assert word in str(caught.value)
