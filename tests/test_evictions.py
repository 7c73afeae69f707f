"""Azure's notice that a machine goes away, from a metadata service of our own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from dagkit.worker.evictions import Evictions

OTHER = {"EventType": "Preempt", "Resources": ["vm-8"], "NotBefore": "Tue, 01 Dec 2026 10:00:00 GMT"}
HARMLESS = {"EventType": "Freeze", "Resources": ["vm-7"], "NotBefore": ""}
OWN = {**OTHER, "Resources": ["vm-8", "vm-7"]}


class Service:
    """Answers as the metadata service of the machine `vm-7` does."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        """What the events are at each look; the last one stays."""
        self.looks = 0
        self.changed = threading.Condition()
        self.url = ""

    def answer(self, path: str, metadata: str | None) -> tuple[int, str]:
        if metadata != "true":
            return 400, "Bad request. Required metadata header not specified"
        if path.startswith("/metadata/instance/"):
            return 200, "vm-7"
        with self.changed:
            found = self.answers[min(self.looks, len(self.answers) - 1)]
            self.looks += 1
            self.changed.notify_all()
        return 200, found if isinstance(found, str) else json.dumps({"DocumentIncarnation": 1, "Events": found})

    def looked(self, times: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.looks >= times, 10.0)


@contextmanager
def serving(service: Service) -> Iterator[Service]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, text = service.answer(self.path, self.headers.get("Metadata"))
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield service
        server.shutdown()
        thread.join()


@pytest.fixture
def service() -> Iterator[Service]:
    with serving(Service()) as one:
        yield one


def test_an_event_that_ends_this_machine_is_told_once(service: Service) -> None:
    service.answers = [[], [OTHER, HARMLESS], [OTHER, OWN]]
    notices: list[str] = []
    told = threading.Event()

    with closing(Evictions(lambda n: (notices.append(n), told.set()), service=service.url, interval_s=0.001)):
        assert told.wait(10.0)

    assert notices == ["Azure will take this machine away: Preempt, not before Tue, 01 Dec 2026 10:00:00 GMT"]
    assert service.looks == 3


def test_answers_that_make_no_sense_are_passed_over(service: Service) -> None:
    service.answers = ["<html>", "[]", '{"Events": []}', [OWN]]
    told = threading.Event()

    with closing(Evictions(lambda notice: told.set(), service=service.url, interval_s=0.001)):
        assert told.wait(10.0)


def test_events_of_other_machines_are_not_told(service: Service) -> None:
    service.answers = [[OTHER, HARMLESS]]
    notices: list[str] = []

    with closing(Evictions(notices.append, service=service.url, interval_s=0.001)):
        service.looked(3)

    assert notices == []


def test_a_machine_without_the_service_is_asked_once() -> None:
    evictions = Evictions(pytest.fail, service="http://127.0.0.1:9", interval_s=0.001)

    evictions._thread.join(10.0)

    assert not evictions._thread.is_alive()
