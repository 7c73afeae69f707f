"""The `[logging]` table: what becomes of what dagkit logs."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagkit.config import load_settings, logs
from dagkit.errors import ConfigError


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    yield
    for name in ("dagkit", "dagkit.coordinator"):
        logger = logging.getLogger(name)
        for handler in logger.handlers[:]:
            logger.removeHandler(handler)
            handler.close()
        logger.setLevel(logging.NOTSET)
        logger.propagate = True


def configured(folder: Path, text: str) -> bool:
    folder.joinpath("dagkit.toml").write_text(text)
    return load_settings(cwd=folder, environ={"HOME": str(folder)}).configure_logging()


def test_what_is_logged_becomes_lines_of_json_with_their_extras_and_traceback(tmp_path: Path) -> None:
    assert configured(tmp_path, '[logging]\njson = true\nfile = "dagkit.log"\n')

    logging.getLogger("dagkit.coordinator").info("%d runs", 3, extra={"runs": 3, "counters": {"saves": 1}})
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("dagkit.worker").exception("it stopped")
    logging.getLogger("dagkit.worker").debug("not this")

    first, second = map(json.loads, tmp_path.joinpath("dagkit.log").read_text().splitlines())
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "level": "INFO",
        "logger": "dagkit.coordinator",
        "message": "3 runs",
        "runs": 3,
        "counters": {"saves": 1},
    }
    assert second["exception"].endswith("ValueError: no")


def test_without_the_table_nothing_is_touched(tmp_path: Path) -> None:
    assert not configured(tmp_path, "slots = 1\n")
    assert logging.getLogger("dagkit").handlers == []


def test_the_table_may_be_a_dict_config_that_names_our_formatters(tmp_path: Path) -> None:
    log = tmp_path / "mine.log"
    text = f"""
    [logging.handlers.mine]
    class = "logging.FileHandler"
    formatter = "json"
    filename = "{log}"
    [logging.loggers."dagkit.coordinator"]
    level = "DEBUG"
    handlers = ["mine"]
    """
    assert configured(tmp_path, text)
    logging.getLogger("dagkit.coordinator").debug("hello")
    assert json.loads(log.read_text())["message"] == "hello"


def test_levels_of_some_loggers_beside_the_short_form(tmp_path: Path) -> None:
    text = '[logging]\nfile = "a.log"\nlevel = "WARNING"\n[logging.loggers."dagkit.coordinator"]\nlevel = "DEBUG"\n'
    configured(tmp_path, text)
    logging.getLogger("dagkit.coordinator").debug("one")
    logging.getLogger("dagkit.worker").info("two")
    line = tmp_path.joinpath("a.log").read_text()
    assert line.endswith(" DEBUG dagkit.coordinator: one\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[logging]\nlevels = 1", ["dagkit.toml: [logging]", "'levels'", "allowed: level, json, file"]),
        ('[logging]\nlevel = "LOUD"', ["dagkit.toml: [logging]", "LOUD"]),
        ('[logging]\njson = "yes"', ["json is true or false"]),
        ("logging = 3", ["logging is not a table"]),
        ('[logging.handlers.x]\nclass = "no.such.Handler"', ["dagkit.toml: [logging]", "'x'", "no"]),
    ],
)
def test_a_wrong_table_is_one_clear_error(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(tmp_path, text)
    for word in words:
        assert word in str(caught.value)


def test_the_same_table_is_applied_once(tmp_path: Path) -> None:
    table: dict[str, Any] = {"file": str(tmp_path / "x.log")}
    logs.apply(table, "here")
    (handler,) = logging.getLogger("dagkit").handlers
    logs.apply(dict(table), "here")
    assert logging.getLogger("dagkit").handlers == [handler]


def test_a_coordinator_logs_where_the_table_says(tmp_path: Path) -> None:
    tmp_path.joinpath("dagkit.toml").write_text('[logging]\njson = true\nfile = "d.log"\nlevel = "DEBUG"\n')
    tmp_path.joinpath("flow.py").write_text(
        "import logging, dagkit\n"
        "run = dagkit.workflow('w')\n"
        "with run as flow:\n    dagkit.shell('true')()\n"
        "flow.run(progress=False)\n"
        "logging.getLogger('dagkit.coordinator').warning('seen')\n"
    )
    done = subprocess.run([sys.executable, "flow.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(tmp_path.joinpath("d.log").read_text().splitlines()[-1])["message"] == "seen"
    assert "seen" not in done.stderr
