"""A layered run on Azurite while everything goes wrong: kill -9, cut connections, lost replies, 503s, slow answers.

Sizes by DAGKIT_TEST_KILLS, as for the daemons of one machine.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from dagkit.config import load_settings
from dagkit.run import Run
from dagkit.stores import open_store
from services.azurite import Account
from services.faulty_proxy import Fault, FaultyProxy, faulty
from services.processes import die_with_parent

pytestmark = [pytest.mark.xdist_group("azurite-daemons"), pytest.mark.slow]

KILLS = int(os.environ.get("DAGKIT_TEST_KILLS", "5"))
LAYERS, WIDTH = max(4, KILLS // 2), 10
DEADLINE_S = 90 + 20 * KILLS


def definition() -> str:
    """Layers in which everything depends on everything; each task notes its attempt before it ends."""
    lines = ["name: chaos", "default_queue: cpu", "tasks:"]
    for layer in range(LAYERS):
        parents = ", ".join(f"t{layer - 1}-{place}" for place in range(WIDTH)) if layer else ""
        for place in range(WIDTH):
            name = f"t{layer}-{place}"
            command = f"echo $JOBQ_WORKFLOW_ATTEMPT >> ran/{name}; sleep 0.3; echo {layer} > $JOBQ_OUTPUT_FILE"
            lines.append(f'- {{name: {name}, depends_on: [{parents}], num_retries: 1, kwargs: {{cmd: "{command}"}}}}')
    return "\n".join(lines)


class Daemons:
    """Two coordinators and two workers, started again whenever they were killed."""

    WORKER = ("worker", "cpu", "--slots", "2", "--lock", "3s", "--max-idle-backoff", "0.3")
    COMMANDS = (("coordinator",), ("coordinator",), WORKER, WORKER)

    def __init__(self, account: Account, folder: Path) -> None:
        self.folder = folder
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("DAGKIT_", "JOBQ_"))}
        self.environment = {**clean, **account.environment, "JOBQ_WORKFLOW_PREFIX": f"{account.name}/Proj"}
        self.processes = [self.start(number) for number in range(len(self.COMMANDS))]

    def start(self, number: int) -> subprocess.Popen[bytes]:
        with open(self.folder / f"{number}.log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dagkit.cli", *self.COMMANDS[number]],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )

    def mind(self) -> None:
        """Start what has ended by itself."""
        for number, process in enumerate(self.processes):
            if process.poll() is not None:
                self.processes[number] = self.start(number)

    def kill(self, number: int) -> None:
        self.processes[number].send_signal(signal.SIGKILL)
        self.processes[number].wait()
        self.processes[number] = self.start(number)

    def close(self) -> str:
        for process in self.processes:
            process.kill()
            process.wait()
        return "\n".join(path.read_text()[-3_000:] for path in sorted(self.folder.glob("?.log")))


def trouble(proxies: tuple[FaultyProxy, ...], chance: random.Random, stop: threading.Event) -> None:
    """Something happens to a request of some service, now and then."""
    kinds = [
        Fault("lose_reply"),
        Fault("cut"),
        Fault("answer"),
        Fault("answer", status=500, code="InternalError"),
        Fault("delay", delay_s=1.0),
    ]
    while not stop.wait(chance.uniform(0.02, 0.3)):
        fault = chance.choice(kinds)
        proxy = chance.choice(proxies)
        proxy.faults = [replace(fault, times=chance.choice((1, 1, 1, 6)))]


def test_every_run_ends_right_whatever_happens(
    azurite_account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ran").mkdir()
    (tmp_path / "chaos.yaml").write_text(definition())
    chance = random.Random(3)
    stop = threading.Event()
    store = open_store(f"azure://{azurite_account.name}/Proj")  # this test itself looks at the service as it is
    with faulty(azurite_account) as (account, proxies):
        daemons = Daemons(account, tmp_path)
        told = ""
        try:
            words = [sys.executable, "-m", "dagkit.cli", "submit", "chaos.yaml", "--id", "w"]
            subprocess.run(words, cwd=tmp_path, env=daemons.environment, check=True, timeout=60)
            troubles = threading.Thread(target=trouble, args=(proxies, chance, stop))
            troubles.start()
            run, kills = Run(store, "w", load_settings(environ={})), 0
            deadline, next_kill = time.monotonic() + DEADLINE_S, time.monotonic() + 2.0
            while not run.status.is_over:
                assert time.monotonic() < deadline, run.summary()
                daemons.mind()
                if kills < KILLS and time.monotonic() > next_kill:
                    daemons.kill(chance.randrange(len(daemons.processes)))
                    kills += 1
                    next_kill = time.monotonic() + chance.uniform(0.5, 2.5)
                time.sleep(0.1)
            status, attempts = str(run.status), {task.name: task.attempt for task in run.tasks()}
        finally:
            stop.set()
            told = daemons.close()

    assert status == "completed", told
    ran = {path.name: path.read_text().split() for path in (tmp_path / "ran").iterdir()}
    assert set(ran) == set(attempts)
    assert len(ran) == LAYERS * WIDTH
    assert all(max(map(int, ran[name])) == attempt for name, attempt in attempts.items()), "an attempt nobody ran"
    repeated = sum(len(lines) for lines in ran.values()) - len(ran)
    assert repeated <= 4 * kills + 40, f"{repeated} repetitions for {kills} kills"
    assert kills > 0
    assert not [process for process in psutil.process_iter() if runs_in(process, tmp_path)], "something is left running"
    store.close()


def runs_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.cwd() == str(folder) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
