"""Whether a coordinator is alive, for whoever has to restart one that is not: `/healthz` on a port, or a file."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from dagkit.errors import ConfigError

__all__ = ["Liveness", "Pulse"]

log = logging.getLogger("dagkit.coordinator")

STALE_S: Final = 60.0
_WRITE_EVERY_S: Final = 5.0
_ADDRESS: Final = re.compile(r"(?:(?P<host>[^/\s]*):)?(?P<port>\d{1,5})")


@dataclass(frozen=True)
class Pulse:
    """A coordinator at one moment; `step_age_s` since its loop was last seen to move."""

    state: str
    runs: int
    step_age_s: float
    counters: Mapping[str, int]

    @property
    def is_alive(self) -> bool:
        return self.step_age_s < STALE_S

    def document(self) -> dict[str, Any]:
        return {
            "alive": self.is_alive,
            "state": self.state,
            "runs": self.runs,
            "step_age_s": round(self.step_age_s, 3),
            "counters": dict(self.counters),
        }


class Liveness:
    """Answers on a port, or keeps a file fresh, until closed. Owns one thread.

    `GET /healthz` is 200 while the loop moves and 503 once it has not for a minute. The file is written again every
    five seconds while the loop moves: its age is what to look at.

    Args:
        where: `PORT` (this machine only), `HOST:PORT` (`0.0.0.0:8080` in a container), or the path of a file.
        feel: Gives the pulse; called from any thread.

    Raises `ConfigError` if the port or the file cannot be used.
    """

    def __init__(self, where: str, feel: Callable[[], Pulse]) -> None:
        self._feel, self._closing = feel, threading.Event()
        self._server: ThreadingHTTPServer | None = None
        address = _ADDRESS.fullmatch(where)
        try:
            if address is not None:
                host, port = address["host"] or "127.0.0.1", int(address["port"])
                self._server = _serve(host, port, feel)
                self.where = f"http://{host}:{self._server.server_port}/healthz"
            else:
                self._path = Path(where)
                self._write()
                self.where = where
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"coordinator.health: {where} cannot be used: {error}. Name a free PORT, HOST:PORT, or a file that "
                f"can be written."
            ) from error
        target = self._keep_fresh if self._server is None else self._server.serve_forever
        self._thread = threading.Thread(target=target, name="dagkit-health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more; the file goes."""
        self._closing.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        self._thread.join()
        if self._server is None:
            self._path.unlink(missing_ok=True)

    def _keep_fresh(self) -> None:
        while not self._closing.wait(_WRITE_EVERY_S):
            try:
                self._write()
            except OSError as error:  # a full disk, say: the file gets old, which is what it is for
                log.warning("%s: %s", self._path, error)

    def _write(self) -> None:
        pulse = self._feel()
        if pulse.is_alive:
            fresh = self._path.with_name(f"{self._path.name}.new")
            fresh.write_text(json.dumps(pulse.document()) + "\n", encoding="utf-8")
            fresh.replace(self._path)


def _serve(host: str, port: int, feel: Callable[[], Pulse]) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        timeout = 5.0

        def do_GET(self) -> None:
            if self.path.partition("?")[0] not in ("/", "/healthz"):
                self.send_error(404)
                return
            pulse = feel()
            body = json.dumps(pulse.document()).encode()
            self.send_response(200 if pulse.is_alive else 503)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):  # whoever asked is gone
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
            log.debug("health: " + format, *args)

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    return server
