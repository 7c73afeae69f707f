"""The real Azurite, one for the session: every test gets a storage account of its own in it."""

from __future__ import annotations

import base64
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from services.processes import die_with_parent, free_ports, is_listening, require, wait_until

__all__ = ["Account", "Azurite", "azurite", "azurite_account", "installed_azurite"]

_ACCOUNTS = 400
_DEVELOPMENT = "devstoreaccount1"
#: The well-known key of the emulator's own account (Microsoft's documentation of Azurite).
_DEVELOPMENT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True)
class Account:
    """A storage account that nobody else uses."""

    name: str
    key: str
    ports: tuple[int, int, int]

    @property
    def endpoints(self) -> str:
        kinds = zip(("Blob", "Queue", "Table"), self.ports, strict=True)
        return "".join(f"{kind}Endpoint=http://127.0.0.1:{port}/{self.name};" for kind, port in kinds)

    @property
    def connection_string(self) -> str:
        return f"DefaultEndpointsProtocol=http;AccountName={self.name};AccountKey={self.key};{self.endpoints}"

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find the account by its name."""
        return {"JOBQ_CONNECTION_STRING": self.connection_string}


class Azurite:
    """Blob, queue and table services in memory, on ports of the loopback."""

    def __init__(self, program: str, folder: Path) -> None:
        self.blob_port, self.queue_port, self.table_port = free_ports(3)
        self._numbers = itertools.count(1)
        keys = {f"dagkit{number:04}": _key(number) for number in range(1, _ACCOUNTS + 1)}
        keys[_DEVELOPMENT] = _DEVELOPMENT_KEY
        ports = ("--blobPort", self.blob_port, "--queuePort", self.queue_port, "--tablePort", self.table_port)
        command = [program, "--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--loose", *map(str, ports)]
        self._process = subprocess.Popen(
            [*command, "--disableTelemetry"],
            cwd=folder,
            env={**os.environ, "AZURITE_ACCOUNTS": ";".join(f"{name}:{key}" for name, key in keys.items())},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent,
        )
        ports_to_open = (self.blob_port, self.queue_port, self.table_port)
        wait_until(lambda: self._is_up(ports_to_open), "Azurite listens on its three ports")

    def _is_up(self, ports: tuple[int, int, int]) -> bool:
        if self._process.poll() is not None:
            pytest.fail(f"Azurite ended with code {self._process.returncode} while it started")
        return all(map(is_listening, ports))

    def account(self) -> Account:
        """The next account that nothing was done with."""
        number = next(self._numbers)
        return Account(f"dagkit{number:04}", _key(number), (self.blob_port, self.queue_port, self.table_port))

    @property
    def development(self) -> dict[str, str]:
        """The environment in which the account name devstoreaccount1 means this Azurite."""
        return {
            "BLOB_PORT": str(self.blob_port),
            "QUEUE_PORT": str(self.queue_port),
            "TABLE_PORT": str(self.table_port),
        }

    def close(self) -> None:
        self._process.kill()
        self._process.wait(10)


def _key(number: int) -> str:
    return base64.b64encode(f"key of account {number:06}".encode().ljust(48, b".")).decode()


def installed_azurite() -> Path | None:
    """The program, where `.ci/services` puts it."""
    places = [Path(os.environ.get("VENV", sys.prefix)), Path(sys.prefix)]
    programs = [place.absolute() / "azurite/node_modules/.bin/azurite" for place in places]
    return next((program for program in programs if os.access(program, os.X_OK)), None)


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """The services; the test fails in CI and is skipped elsewhere if Azurite is not installed."""
    running = Azurite(str(installed_azurite() or require("azurite")), tmp_path_factory.mktemp("azurite"))
    yield running
    running.close()


@pytest.fixture
def azurite_account(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> Account:
    """An empty account that this process and its children find by its name."""
    account = azurite.account()
    for name, value in account.environment.items():
        monkeypatch.setenv(name, value)
    return account
