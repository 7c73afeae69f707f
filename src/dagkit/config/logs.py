"""What the `[logging]` table of `dagkit.toml` says of the loggers under `dagkit`."""

from __future__ import annotations

import json
import logging
import logging.config
import threading
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Final

from dagkit.errors import ConfigError

__all__ = ["JsonFormatter", "apply", "dict_config"]

_SHORT: Final = ("level", "json", "file")
_DICT_CONFIG: Final = ("version", "disable_existing_loggers", "formatters", "filters", "handlers", "loggers", "root")
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
#: What every record has, and so is no extra of its own.
_USUAL: Final = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"))

_lock = threading.Lock()
_applied: Mapping[str, Any] | None = None


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, then what the caller gave as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({key: value for key, value in vars(record).items() if key not in _USUAL and key not in line})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def dict_config(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The table in the words of `logging.config.dictConfig`.

    `level`, `json` and `file` are short for a handler of the loggers under `dagkit`; every other key is dictConfig's
    own, and the formatters `text` and `json` are there to be named. `ConfigError` for a key that means nothing.
    """
    unknown = [key for key in table if key not in (*_SHORT, *_DICT_CONFIG)]
    if unknown:
        allowed = ", ".join((*_SHORT, *_DICT_CONFIG))
        raise ConfigError(f"{where}: unknown key {unknown[0]!r}; allowed: {allowed}")
    formatters = {"text": {"format": _TEXT}, "json": {"()": f"{__name__}.JsonFormatter"}}
    config: dict[str, Any] = {"version": 1, "disable_existing_loggers": False}
    config["formatters"] = {**formatters, **table.get("formatters", {})}
    if any(key in table for key in _SHORT):
        config["handlers"] = {"dagkit": _handler(table, where)}
        level = table.get("level", "INFO")
        config["loggers"] = {"dagkit": {"level": level, "handlers": ["dagkit"], "propagate": False}}
    for key in _DICT_CONFIG:
        if key in table and key != "formatters":
            config[key] = {**config.get(key, {}), **table[key]} if isinstance(table[key], Mapping) else table[key]
    return config


def _handler(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(table.get("json", False), bool):
        raise ConfigError(f"{where}: json is true or false, not {table['json']!r}")
    formatter = "json" if table.get("json") else "text"
    if "file" not in table:
        return {"class": "logging.StreamHandler", "formatter": formatter}  # stderr
    return {"class": "logging.FileHandler", "formatter": formatter, "filename": str(table["file"]), "delay": True}


def apply(table: Mapping[str, Any], where: str) -> None:
    """Configure the logging of this process by the table, unless that has been done. `ConfigError`."""
    global _applied
    with _lock:
        if not table or table == _applied:
            return
        try:
            logging.config.dictConfig(dict_config(table, where))
        except (ValueError, TypeError, AttributeError, ImportError, OSError) as error:
            cause = f": {error.__cause__}" if error.__cause__ is not None else ""
            raise ConfigError(f"{where}: {error}{cause}") from None
        _applied = dict(table)
