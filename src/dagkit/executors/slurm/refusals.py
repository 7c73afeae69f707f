"""What `sbatch` says when it does not take a job: later, never, or perhaps it has."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

__all__ = ["Refusal", "clear_words", "refusal_of"]


class Refusal(Enum):
    """What to do about a submission that failed."""

    DEFERRED = "deferred"
    """A limit on the number of jobs: try again when some have ended."""
    UNCERTAIN = "uncertain"
    """The controller did not answer: the job may exist, so look for its name before submitting again."""
    CONFIG = "config"
    """The request is wrong for this cluster, and will be wrong the next time."""


#: Limits on how many jobs may be submitted (slurm.conf(5), sacctmgr(1)); their names stand in sbatch's first line.
_DEFERRED: Final = re.compile(
    r"MaxSubmit|SubmitJobLimit|GrpSubmit|MaxJobCount|temporarily unable to accept job|"
    r"Resource temporarily unavailable|job submit limit reached|Too many|RPC rate limit",
    re.IGNORECASE,
)
#: Limits on the size of one job share the text of the limits on their number.
_TOO_LARGE: Final = re.compile(r"Max(Wall|Cpu|Node|Mem|TRES|Gres|Minutes)|MinCpu|MinGres|MinMem|MinNode", re.IGNORECASE)
_POLICY: Final = re.compile(r"violates accounting/QOS policy", re.IGNORECASE)
_UNCERTAIN: Final = re.compile(
    r"Socket timed out|Unable to contact slurm controller|Zero Bytes were transmitted|connection failure|"
    r"Connection (refused|reset|timed out)|Unexpected message received|Transport endpoint|"
    r"Slurm backup controller|Header lengths are longer|in standby mode|Munge (encode|decode) failed|slurm_receive_msg",
    re.IGNORECASE,
)
_PREFIX: Final = re.compile(r"^(sbatch|srun): (error|fatal): ", re.MULTILINE)
_HINTS: Final = (
    ("partition", "the queue's `partition` in dagkit.toml; `sinfo -s` lists the partitions"),
    ("account", "the queue's `account` in dagkit.toml; `sacctmgr show assoc user=$USER` lists yours"),
    ("qos", "the queue's `qos` in dagkit.toml; `sacctmgr show assoc user=$USER format=account,qos` lists yours"),
    ("node configuration", "cores, memory, gpus and nodes of the task; `sinfo -o '%P %c %m %G'` shows what nodes have"),
    ("memory specification", "memory of the task; `sinfo -o '%P %m'` shows what nodes have"),
    ("gres", "gpus of the task, and the queue's `gres` in dagkit.toml; `sinfo -o '%P %G'` shows what nodes have"),
    ("feature", "the queue's `constraint` in dagkit.toml; `sinfo -o '%P %f'` shows what nodes have"),
    ("time limit", "runtime of the task; `sinfo -o '%P %l'` shows the limits of partitions"),
)


def refusal_of(said: str, *, has_jobs: bool) -> Refusal:
    """What a failed `sbatch` means; `has_jobs`: this user has jobs in the queue, so that a limit may be full."""
    if _UNCERTAIN.search(said):
        return Refusal.UNCERTAIN
    if _TOO_LARGE.search(said):
        return Refusal.CONFIG
    if _DEFERRED.search(said):
        # sbatch's own text for every policy names the submit limit among others: it counts only where it can be full.
        is_only_policy = not _DEFERRED.search(_POLICY.sub("", said.replace("job submit limit", "")))
        return Refusal.DEFERRED if has_jobs or not is_only_policy else Refusal.CONFIG
    if _POLICY.search(said):
        return Refusal.DEFERRED if has_jobs else Refusal.CONFIG
    return Refusal.CONFIG


def clear_words(said: str, partition: str | None) -> str:
    """One line from what sbatch printed, with what to look at."""
    lines = [line.strip() for line in _PREFIX.sub("", said).splitlines() if line.strip()]
    text = "; ".join(dict.fromkeys(lines)) or "sbatch failed without a word"
    hint = next((hint for word, hint in _HINTS if word in text.lower()), "")
    where = f" (partition {partition})" if partition else ""
    return f"Slurm does not take this job{where}: {text}" + (f". Look at {hint}" if hint else "")
