"""Starts the daemons of one Slurm cluster in a folder, waits for its stdin to end, and leaves nothing behind.

A program of its own: a test session that is killed closes the pipe, and this ends what the session started, job steps
included, which outlive their slurmd. Says `ready <memory enforcement>` or `failed <why>` on stdout.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_START_S = 60.0
_CGROUP = Path("/sys/fs/cgroup")


class Failed(Exception):
    """A daemon did not start."""


class Daemons:
    """munged, mariadbd, slurmdbd, slurmctld and one slurmd per node, in the foreground and in this order."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self.folder = folder
        self.database_port, self.accounting_port, self.controller_port, *self.node_ports = ports
        self.host = socket.gethostname().partition(".")[0]
        self.nodes = [f"n{number}" for number, _ in enumerate(self.node_ports, 1)]
        self.enforcement = "cgroup" if can_use_cgroups() else "polling"
        self._started: list[tuple[str, subprocess.Popen[bytes]]] = []
        os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
        os.environ["PATH"] += ":/usr/sbin:/sbin"

    def start(self) -> None:
        for name in ("etc", "db", "state", "log", *(f"spool-{node}" for node in self.nodes)):
            (self.folder / name).mkdir()
        self._write_files()
        self._start_munge()
        self._start_database()
        self._start_slurm()
        self._fill_accounts()

    # --- configuration

    def _write_files(self) -> None:
        key = self.folder / "etc/munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self._write("slurmdbd.conf", self._accounting(), 0o600)
        self._write("slurm.conf", self._cluster())
        self._write("gres.conf", "AutoDetect=off\nName=gpu File=/dev/null\nName=gpu File=/dev/zero\n")
        if self.enforcement == "cgroup":
            self._write(
                "cgroup.conf",
                f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={_CGROUP}\nCgroupAutomount=no\n"
                "ConstrainRAMSpace=yes\nConstrainSwapSpace=no\nConstrainCores=no\nConstrainDevices=no\n",
            )

    def _write(self, name: str, text: str, mode: int = 0o644) -> None:
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)

    def _accounting(self) -> str:
        return f"""AuthType=auth/munge
AuthInfo=socket={self.folder}/munge.socket
DbdHost=localhost
DbdPort={self.accounting_port}
SlurmUser=root
DebugLevel=error
LogFile={self.folder}/log/slurmdbd.log
PidFile={self.folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={self.database_port}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
"""

    def _cluster(self) -> str:
        folder = self.folder
        over_memory = "" if self.enforcement == "cgroup" else "JobAcctGatherParams=OverMemoryKill\n"
        task_plugin = "task/cgroup" if self.enforcement == "cgroup" else "task/none"
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={self.host} NodeAddr=127.0.0.1 Port={port} CPUs=16 RealMemory=16000 "
            "Gres=gpu:2 State=UNKNOWN"
            for node, port in zip(self.nodes, self.node_ports, strict=True)
        )
        common = f"Nodes={self.nodes[0]} State=UP"
        return f"""ClusterName=dagkit
SlurmctldHost={self.host}(127.0.0.1)
SlurmctldPort={self.controller_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=8
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
SlurmctldDebug=info
SlurmdDebug=info
ProctrackType=proctrack/linuxproc
TaskPlugin={task_plugin}
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0,defer,bf_interval=1,preempt_youngest_first
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PriorityType=priority/basic
MaxArraySize=1001
MaxJobCount=20000
MinJobAge=300
KillWait=2
InactiveLimit=0
Waittime=0
JobRequeue=1
MessageTimeout=30
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={self.accounting_port}
AccountingStoragePass={folder}/munge.socket
AccountingStorageEnforce=associations,limits,qos
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
{over_memory}{nodes}
PartitionName=debug {common} Default=YES DefMemPerCPU=200 PriorityTier=10 PreemptMode=off
PartitionName=minute {common} MaxTime=1 DefMemPerCPU=200 PriorityTier=10 PreemptMode=off
PartitionName=scavenge {common} DefMemPerCPU=200 PriorityTier=1 PreemptMode=REQUEUE
PartitionName=both Nodes={",".join(self.nodes)} State=UP DefMemPerCPU=200 PriorityTier=10 PreemptMode=off
"""

    # --- the services

    def _start_munge(self) -> None:
        folder, nice = self.folder, [f"--{name}-file={self.folder}/munged.{name}" for name in ("log", "pid", "seed")]
        self._run("munged", "-F", "-f", f"-S{folder}/munge.socket", f"--key-file={folder}/etc/munge.key", *nice)
        self._await((folder / "munge.socket").exists, "munged")

    def _start_database(self) -> None:
        data, scratch = self.folder / "db", self.folder / "db.tmp"
        scratch.mkdir()  # in a shared one, two databases that are installed at a time delete each other's tables
        installed = subprocess.run(
            [
                "mariadb-install-db",
                "--no-defaults",
                "--user=root",
                f"--datadir={data}",
                f"--tmpdir={scratch}",
                "--skip-test-db",
                "--auth-root-authentication-method=normal",
                "--skip-name-resolve",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if installed.returncode:
            raise Failed(f"mariadb-install-db: {installed.stderr[-500:]}")
        opening = self.folder / "etc/init.sql"
        opening.write_text(
            "CREATE DATABASE slurm_acct_db;\n"
            "CREATE USER 'slurm'@'127.0.0.1' IDENTIFIED BY 'slurm';\n"
            "GRANT ALL ON slurm_acct_db.* TO 'slurm'@'127.0.0.1';\n"
        )
        self._run(
            "mariadbd",
            "--no-defaults",
            "--user=root",
            f"--datadir={data}",
            f"--tmpdir={scratch}",
            f"--socket={self.folder}/db.socket",
            f"--pid-file={self.folder}/db.pid",
            f"--port={self.database_port}",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            f"--init-file={opening}",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-buffer-pool-size=128M",
            "--innodb-lock-wait-timeout=900",
        )
        self._await(lambda: is_listening(self.database_port), "mariadbd")

    def _start_slurm(self) -> None:
        self._run("slurmdbd", "-D")
        self._await(lambda: is_listening(self.accounting_port), "slurmdbd")
        self._try_until("sacctmgr", "-i", "add", "cluster", "dagkit")
        self._run("slurmctld", "-D")
        self._await(lambda: is_listening(self.controller_port), "slurmctld")
        for node in self.nodes:
            self._run("slurmd", "-D", "-N", node)
        self._await(lambda: self._idle_nodes() == len(self.nodes), "slurmd")

    def _idle_nodes(self) -> int:
        shown = subprocess.run(["sinfo", "-h", "-N", "-p", "both", "-o", "%t"], capture_output=True, check=False)
        return shown.stdout.split().count(b"idle")

    def _fill_accounts(self) -> None:
        """One account, and a quality of service of which a user may have four jobs (a site's submit limit)."""
        for words in (
            "add account science description=science organization=science",
            "add qos four set MaxSubmitJobsPerUser=4",
            "add user root account=science",
            "modify user root set qos+=four",
        ):
            self._try_until("sacctmgr", "-i", *words.split())
        self._try_until("sbatch", "--test-only", "--wrap=true")

    def _run(self, *command: str) -> None:
        log = (self.folder / f"log/{command[0]}.out").open("ab")
        with log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, preexec_fn=die_with_parent
            )
        self._started.append((command[0], process))

    def _await(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _START_S
        while not holds():
            ended = [f"{name} ended with {process.returncode}" for name, process in self._started if process.poll()]
            if ended or time.monotonic() > deadline:
                raise Failed(f"{what} did not come up: {', '.join(ended) or 'no answer'}\n{self._last_words(what)}")
            time.sleep(0.05)

    def _try_until(self, *command: str) -> None:
        """Run a command until it works; the daemon that answers it has only just begun to listen."""
        deadline = time.monotonic() + _START_S
        while True:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            said = done.stdout + done.stderr
            if done.returncode == 0 or "Nothing new added" in said or "already exist" in said:
                return
            if time.monotonic() > deadline:
                raise Failed(f"{' '.join(command)}: {said[-500:]}")
            time.sleep(0.2)

    def _last_words(self, name: str) -> str:
        logs = [*self.folder.glob(f"log/{name}*")]
        return "\n".join(path.read_text(errors="replace")[-600:] for path in logs)

    # --- the end

    def stop(self) -> None:
        """Kill daemons and job steps, and remove the folder and the control groups."""
        for _, process in reversed(self._started):
            process.kill()
        for _, process in self._started:
            process.wait()
        self._kill_steps()
        self._remove_groups()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _kill_steps(self) -> None:
        deadline = time.monotonic() + 10
        while (pids := list(processes_with(f"SLURM_CONF={self.folder}/slurm.conf"))) and time.monotonic() < deadline:
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def _remove_groups(self) -> None:
        for node in self.nodes:
            for top in _CGROUP.glob(f"*/slurm_{node}"):
                for folder, _, _ in os.walk(top, topdown=False):
                    with contextlib.suppress(OSError):
                        Path(folder).rmdir()


def can_use_cgroups() -> bool:
    """Whether the first version of the kernel's control groups limits memory here. The second needs systemd's D-Bus."""
    probe = _CGROUP / f"memory/dagkit-probe-{os.getpid()}"
    try:
        probe.mkdir()
        usable = (probe / "memory.limit_in_bytes").exists()
        probe.rmdir()
    except OSError:
        return False
    return usable


def processes_with(variable: str) -> Iterable[int]:
    """Processes but this one that have a variable in their environment."""
    wanted = variable.encode() + b"\0"
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted in Path(entry.path, "environ").read_bytes():
                    yield int(entry.name)


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def die_with_parent() -> None:
    """Should this very process be killed, its daemons go too (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """`slurm_daemons.py FOLDER PORT...`"""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    daemons = Daemons(Path(sys.argv[1]), [int(port) for port in sys.argv[2:]])
    try:
        try:
            daemons.start()
            print(f"ready {daemons.enforcement}", flush=True)
        except (Failed, OSError) as error:
            print(f"failed {error}", flush=True)
        sys.stdin.read()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        daemons.stop()


if __name__ == "__main__":
    main()
