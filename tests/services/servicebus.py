"""The Service Bus emulator, one process for the session: every test gets a namespace of its own in it."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from services.processes import die_with_parent

__all__ = ["Emulator", "Namespace", "servicebus", "servicebus_namespace"]

_TESTS = Path(__file__).parent.parent
_POLICY, _KEY = "RootManageSharedAccessKey", "c2VydmljZSBidXMga2V5IG9mIHRoZSB0ZXN0cw=="


class Emulator:
    """Takes orders on its standard input, and ends when that ends."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "emulators.servicebus"],
            cwd=_TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)

    def order(self, do: str, **fields: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the emulator has ended"}
        if "error" in answer:
            pytest.fail(f"{do} {fields}: {answer['error']}")
        return answer

    def namespace(self, **policies: Mapping[str, Any]) -> Namespace:
        """The next namespace that nothing was done with; policies beside the one that may do all."""
        told = {_POLICY: {"key": _KEY}, **policies}
        opened = self.order("namespace", policies=told)
        return Namespace(self, f"bus{next(self._numbers)}", opened["namespace"], opened["amqp"], opened["admin"], told)

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait(10)


@dataclass(frozen=True)
class Namespace:
    """A namespace that nobody else uses, in the hands of a test."""

    emulator: Emulator
    name: str
    number: int
    amqp_port: int
    admin_port: int
    policies: dict[str, Any] = field(repr=False)

    @property
    def url(self) -> str:
        return f"sb://{self.name}"

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self.admin_port}"

    def connection_string(self, policy: str = _POLICY, key: str | None = None) -> str:
        key = self.policies[policy]["key"] if key is None else key
        endpoint = f"Endpoint=sb://127.0.0.1:{self.amqp_port}"
        return f"{endpoint};SharedAccessKeyName={policy};SharedAccessKey={key};UseDevelopmentEmulator=true"

    def environment(self, policy: str = _POLICY, key: str | None = None) -> dict[str, str]:
        """What a process needs to find the namespace by its name."""
        return {
            f"DAGKIT_CONNECTION_STRING_{self.name.upper()}": self.connection_string(policy, key),
            "DAGKIT_SERVICEBUS_ADMIN": self.admin_url,
        }

    def create(self, name: str, **rules: Any) -> None:
        """A queue by the rules of `emulators.servicebus.broker.Rules`: those of dagkit's own, unless said otherwise."""
        ours = {"detects_duplicates": True, "history_s": 604_800, "max_delivery_count": 2000}
        self.order("create", name=name, rules={**ours, **rules})

    def fault(self, point: str, kind: str, **fields: Any) -> None:
        """See `emulators.servicebus.faults.Fault`."""
        self.order("fault", point=point, kind=kind, **fields)

    def look(self) -> dict[str, Any]:
        """Counts and rules of each queue, how often each point of the protocol was passed, connections."""
        return self.order("look")

    def counts(self, queue: str) -> dict[str, int]:
        counts: dict[str, int] = self.look()["queues"][queue]["counts"]
        return counts

    def order(self, do: str, **fields: Any) -> dict[str, Any]:
        return self.emulator.order(do, namespace=self.number, **fields)


@pytest.fixture(scope="session")
def servicebus() -> Iterator[Emulator]:
    """The emulator."""
    running = Emulator()
    yield running
    running.close()


@pytest.fixture
def servicebus_namespace(servicebus: Emulator, monkeypatch: pytest.MonkeyPatch) -> Namespace:
    """An empty namespace that this process and its children find by its name."""
    namespace = servicebus.namespace()
    for name, value in namespace.environment().items():
        monkeypatch.setenv(name, value)
    return namespace
