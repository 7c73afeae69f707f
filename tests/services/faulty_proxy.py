"""Stands between an SDK and a real service, and does to their conversation what networks and services do."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from services.azurite import Account

__all__ = ["Fault", "FaultyProxy", "faulty"]

_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "date", "server"})


@dataclass
class Fault:
    """What happens to the next `times` requests of a method whose path contains `path`.

    Attributes:
        kind: `lose_reply` (the service has done it, nobody is told), `cut` (the service never hears of it), `answer`
            (with `status` and `code`, the service never hears of it), `delay` (by `delay_s`, then all is well).
    """

    kind: str
    method: str = ""
    path: str = ""
    times: int = 1
    status: int = 503
    code: str = "ServerBusy"
    delay_s: float = 0.0


class FaultyProxy:
    """Forwards to one port of the loopback. `faults` may be added to at any time; what was done is in `requests`."""

    def __init__(self, port: int) -> None:
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except (ConnectionError, TimeoutError):
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

            def forward(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fault = proxy._taken(self.command, self.path)
                if fault and fault.kind == "delay":
                    time.sleep(fault.delay_s)
                if fault and fault.kind == "cut":
                    self.close_connection = True
                    return
                if fault and fault.kind == "answer":
                    self._answer(fault.status, {"x-ms-error-code": fault.code}, b"")
                    return
                upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                upstream.request(self.command, self.path, body, dict(self.headers.items()))
                response = upstream.getresponse()
                data = response.read()
                upstream.close()
                if fault and fault.kind == "lose_reply":
                    self.close_connection = True
                    return
                self._answer(response.status, dict(response.getheaders()), data)

            def _answer(self, status: int, headers: dict[str, str], data: bytes) -> None:
                self.send_response(status)
                kept = {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}
                if self.command != "HEAD":
                    kept = {name: value for name, value in kept.items() if name.lower() != "content-length"}
                    kept["Content-Length"] = str(len(data))
                for name, value in kept.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = do_MERGE = forward  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def _taken(self, method: str, path: str) -> Fault | None:
        with self._lock:
            self.requests.append(f"{method} {path}")
            for fault in self.faults:
                if fault.times > 0 and fault.method in ("", method) and fault.path in path:
                    fault.times -= 1
                    return fault
        return None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


@contextmanager
def faulty(account: Account) -> Iterator[tuple[Account, tuple[FaultyProxy, FaultyProxy, FaultyProxy]]]:
    """The account as seen through three proxies: blob, queue, table."""
    proxies = tuple(map(FaultyProxy, account.ports))
    try:
        yield replace(account, ports=tuple(proxy.port for proxy in proxies)), proxies  # type: ignore[misc, arg-type]
    finally:
        for proxy in proxies:
            proxy.close()
