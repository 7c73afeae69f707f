"""What a simulated site is like: sizes, times, and the points on which real sites differ or nobody knows."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

__all__ = ["GROUPS", "LIMIT_NAMES", "ResourceGroup", "Site"]

#: Rows of `pjstat --limit`, in their order (facts: pjm 3).
LIMIT_NAMES: Final = (
    "ru-accept",
    "ru-accept-allsubjob",
    "ru-accept-bulksubjob",
    "ru-accept-stepsubjob",
    "ru-run-job",
    "ru-run-bulksubjob",
    "ru-use-node",
    "ru-interact-accept",
    "ru-interact-run-job",
    "ru-interact-use-node",
    "ru-use-core",
    "ru-interact-use-core",
)


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Bounds of a resource group: nodes, and seconds of elapse time."""

    least_nodes: int
    most_nodes: int
    most_s: int


_HOUR_S: Final = 3600
GROUPS: Final = {
    "small": ResourceGroup(1, 384, 72 * _HOUR_S),
    "large": ResourceGroup(385, 12288, 24 * _HOUR_S),
    "int": ResourceGroup(1, 12, 6 * _HOUR_S),
    "spot-small": ResourceGroup(1, 384, 4 * _HOUR_S),
}


@dataclass(frozen=True, slots=True)
class Site:
    """A machine. Times are seconds of its own clock.

    Attributes:
        dialect: `fugaku`, `fx100` (the counts before the table) or `wisteria` (another pjstat altogether).
        mode: `exec` runs the scripts of jobs as processes; `plan` runs nothing, and jobs go as rules say.
        user, groups: Who asks, and the projects that may be charged.
        at_a_time: Most jobs that run at a time, however many nodes they ask for; for machines that are a laptop.
        is_group_needed: Whether a job without `-g` is refused.
        accept_s, schedule_s, acquire_s, prologue_s, epilogue_s, runout_s: The way of a job from ACC to EXT.
        delete_s: Until a deletion that was accepted takes effect.
        kill_s: Between SIGXCPU at the elapse limit and SIGKILL.
        live_s: How long an ended job stays in the live view; `history_lag_s` until it is in the history.
        output_lag_s: Until outputs of an ended job can be seen.
        may_backfill: Whether a small job may pass a large one that waits.
        may_bulk: Whether this user may submit bulk jobs.
        long_ids: `shift` or `cut`, where an id is wider than its column.
        unknown_id: `header` or `nothing`, when pjstat is asked for jobs that nobody knows.
        error_stream: Where pjsub complains: `stderr` or `stdout`.
        does_single_count: Whether a single job takes a slot of ru-accept-allsubjob.
        has_plain_ids: Whether `-z jid` prints the bare id of bulk jobs too.
        has_extra_column: Whether `--choose` answers with a column that was not asked for.
        data_areas: Folders that jobs may be submitted from; none: all.
        is_volume_needed: Whether a job must name its volumes in PJM_LLIO_GFSCACHE.
        first_id: Of the first job; so high that ids of sub-jobs are wider than their column of ten characters.
        history_days: How far back the history goes.
        command_s: How long every command takes, in real seconds.
    """

    dialect: str = "fugaku"
    mode: str = "exec"
    user: str = "user1"
    groups: tuple[str, ...] = ("group1",)
    rscunit: str = "rscunit_ft01"
    nodes: int = 384
    at_a_time: int | None = None
    is_group_needed: bool = True
    accept_s: float = 1.0
    schedule_s: float = 5.0
    acquire_s: float = 2.0
    prologue_s: float = 1.0
    epilogue_s: float = 1.0
    runout_s: float = 3.0
    delete_s: float = 2.0
    kill_s: float = 10.0
    live_s: float = 30.0
    history_lag_s: float = 5.0
    output_lag_s: float = 0.0
    may_backfill: bool = True
    may_bulk: bool = True
    long_ids: str = "shift"
    unknown_id: str = "header"
    error_stream: str = "stderr"
    does_single_count: bool = True
    has_plain_ids: bool = True
    has_extra_column: bool = False
    data_areas: tuple[str, ...] = ()
    is_volume_needed: bool = False
    first_id: int = 43607190
    history_days: int = 90
    command_s: float = 0.0
    resource_groups: dict[str, ResourceGroup] = field(default_factory=lambda: dict(GROUPS))

    def faster(self, factor: float) -> Site:
        """The same site with its own times divided; jobs take what they take, and elapse limits are what they are."""
        names = ("accept_s", "schedule_s", "acquire_s", "prologue_s", "epilogue_s", "runout_s", "delete_s", "kill_s")
        return replace(self, **{name: getattr(self, name) / factor for name in names})

    @classmethod
    def quick(cls, **fields: Any) -> Site:
        """A site at which nothing takes long, and no project is asked for; for tests in which jobs really run."""
        none = dict.fromkeys(("accept_s", "acquire_s", "prologue_s", "epilogue_s", "runout_s"), 0.0)
        little = {"schedule_s": 0.05, "delete_s": 0.1, "kill_s": 0.3, "history_lag_s": 0.05}
        found: dict[str, Any] = {**none, **little, "is_group_needed": False, **fields}
        return cls(**found)

    def plain(self) -> dict[str, Any]:
        """What JSON can hold."""
        return asdict(self)

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Site:
        """The site from `plain`."""
        found: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()
        }
        if "resource_groups" in found:
            groups: dict[str, dict[str, int]] = found["resource_groups"]
            found["resource_groups"] = {name: ResourceGroup(**group) for name, group in groups.items()}
        return cls(**found)
