"""Settings: precedence, sources, places, and mistakes that are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dagkit.config import Settings, load_settings
from dagkit.errors import ConfigError
from dagkit.settings import CoordinatorSettings, WorkerSettings, options_of, parse_duration


def load(cwd: Path, environ: dict[str, str] | None = None, **keywords: Any) -> Settings:
    return load_settings(environ={"HOME": str(cwd / "nobody"), **(environ or {})}, cwd=cwd, **keywords)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


# --- the store


def test_the_default_store_is_dagkit_in_the_current_folder(tmp_path: Path) -> None:
    settings = load(tmp_path)

    assert settings.store == str(tmp_path / ".dagkit")
    assert settings.sources["store"] == "default"


@pytest.mark.parametrize("mark", [".dagkit/state.db", "dagkit.toml"])
def test_the_nearest_ancestor_with_a_store_or_a_configuration_is_used(tmp_path: Path, mark: str) -> None:
    write(tmp_path / "project" / mark, "")
    below = tmp_path / "project" / "notebooks" / "old"
    below.mkdir(parents=True)

    assert load(below).store == str(tmp_path / "project" / ".dagkit")


def test_option_beats_environment_beats_file(tmp_path: Path) -> None:
    write(tmp_path / "dagkit.toml", 'store = "file-store"')
    environ = {"DAGKIT_STORE": "env-store", "JOBQ_WORKFLOW_PREFIX": "acct/other"}

    assert load(tmp_path, environ, store="flag-store").store == str(tmp_path / "flag-store")
    assert load(tmp_path, environ).store == str(tmp_path / "env-store")
    assert load(tmp_path).store == str(tmp_path / "file-store")


def test_a_relative_store_of_a_file_is_relative_to_the_file(tmp_path: Path) -> None:
    write(tmp_path / "dagkit.toml", 'store = "shared/.dagkit"')
    below = tmp_path / "deep"
    below.mkdir()

    assert load(below).store == str(tmp_path / "shared" / ".dagkit")


def test_the_shorthand_and_the_jobq_variable_are_cut_at_the_last_slash(tmp_path: Path) -> None:
    assert load(tmp_path, location="acct/Proj").store == "azure://acct/Proj"
    assert load(tmp_path, {"JOBQ_WORKFLOW_PREFIX": "a/b/Proj"}).store == "azure://a/b/Proj"


@pytest.mark.parametrize("text", ["sb://ns/x", "AccountName=x;Key=y/z", "acct", "/prefix", "acct/"])
def test_a_shorthand_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="STORAGE/PREFIX"):
        load(tmp_path, location=text)


@pytest.mark.parametrize("url", ["memory:", "sqlite:/data/x", "azure://acct/p"])
def test_urls_stay_as_they_are(tmp_path: Path, url: str) -> None:
    assert load(tmp_path, {"DAGKIT_STORE": url}).store == url


@pytest.mark.parametrize("name", ["JOBQ_WORKFLOW", "JOBQ_WORKFLOW_STATE"])
def test_former_names_are_refused_with_the_new_one(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="JOBQ_WORKFLOW_PREFIX"):
        load(tmp_path, {name: "x"})


# --- other settings


def test_sources_are_remembered(tmp_path: Path) -> None:
    path = write(tmp_path / "dagkit.toml", "[worker]\nslots = 3\n[coordinator]\nbatch_size = 7\n")
    settings = load(tmp_path, {"JOBQ_KILL_TIMEOUT": "9"}, options={"coordinator.batch_size": 8, "worker.grace_s": None})

    assert (settings.worker.slots, settings.sources["worker.slots"]) == (3, f"config {path}")
    assert (settings.worker.kill_timeout_s, settings.sources["worker.kill_timeout_s"]) == (9.0, "env JOBQ_KILL_TIMEOUT")
    assert (settings.coordinator.batch_size, settings.sources["coordinator.batch_size"]) == (8, "flag")
    assert settings.sources["worker.grace_s"] == "default"


def test_the_table_of_a_pyproject_counts_and_a_foreign_one_does_not(tmp_path: Path) -> None:
    write(tmp_path / "a" / "pyproject.toml", "[tool.dagkit]\nslots = 5\n")
    write(tmp_path / "b" / "pyproject.toml", "[tool.other]\nslots = 5\n")

    assert load(tmp_path / "a").general.slots == 5
    assert load(tmp_path / "b").general.slots is None


def test_jobq_yaml_gives_connection_and_coordinator(tmp_path: Path) -> None:
    write(
        tmp_path / ".jobq.yaml",
        "connection: {storage: acct, prefix: proj, queues: 'sb://ns', blobs: acct/files}\n"
        "coordinator: {batch_size: 16}\n",
    )
    settings = load(tmp_path)

    assert settings.store == "azure://acct/proj"
    assert (settings.general.queues, settings.general.blobs) == ("sb://ns", "acct/files")
    assert settings.coordinator.batch_size == 16


def test_an_empty_file_is_fine_and_a_missing_named_one_is_not(tmp_path: Path) -> None:
    write(tmp_path / "jobq.yaml", "")
    assert load(tmp_path).config_paths == (tmp_path / "jobq.yaml",)

    with pytest.raises(ConfigError, match=r"no configuration file .*gone\.yaml"):
        load(tmp_path, {"JOBQ_WORKFLOW_CONFIG": "gone.yaml"})


def test_a_named_file_replaces_those_that_would_be_found(tmp_path: Path) -> None:
    write(tmp_path / "dagkit.toml", "slots = 1")
    named = write(tmp_path / "other.toml", 'target = "queued"')
    settings = load(tmp_path, config=named)

    assert (settings.general.slots, settings.general.target) == (None, "queued")


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("dagkit.toml", "slot = 1", ["dagkit.toml", "'slot'", "allowed", "Did you mean 'slots'"]),
        ("dagkit.toml", "[worker]\nslotz = 1", ["[worker]", "'slotz'", "max_idle_backoff_s"]),
        ("dagkit.toml", "worker = 1", ["worker", "not a table"]),
        ("dagkit.toml", "slots = x\n", ["dagkit.toml", "line 1"]),
        ("dagkit.toml", "slots = true", ["dagkit.toml: slots", "True"]),
        ("dagkit.toml", 'slots = "many"', ["dagkit.toml: slots", "'many'"]),
        ("dagkit.toml", "store = 3", ["dagkit.toml: store", "3"]),
        (
            "dagkit.toml",
            "[targets.x]\ndefault = 'lokal'",
            ["[targets.x]", "'lokal'", "local, queued", "Did you mean 'local'"],
        ),
        ("dagkit.toml", "[targets.x]\nslot = 2", ["[targets.x]", "'slot'"]),
        ("dagkit.toml", "[targets.x.queues.gpu]\nslots = 2", ["queues.gpu", "executor"]),
        ("dagkit.toml", "[targets.x]\nslots = 0", ["[targets.x]", "slots", "at least 1"]),
        ("jobq.yaml", "conection: {}", ["'conection'", "connection, coordinator"]),
        ("jobq.yaml", "connection: {storage: acct}", ["both halves"]),
        ("jobq.yaml", "[1]", ["expected sections"]),
        ("jobq.yaml", "a: [", ["jobq.yaml"]),
        ("jobq.yaml", "connection: {blobs: acct}", ["blobs", "<account>/<container>"]),
    ],
)
def test_a_mistake_in_a_file_is_named_with_the_file(tmp_path: Path, file: str, text: str, words: list[str]) -> None:
    write(tmp_path / file, text)

    with pytest.raises(ConfigError) as error:
        load(tmp_path)

    for word in words:
        assert word in str(error.value)


def test_a_mistake_in_a_variable_is_named_with_the_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"JOBQ_MAX_IDLE_BACKOFF.*'soon'"):
        load(tmp_path, {"JOBQ_MAX_IDLE_BACKOFF": "soon"})


def test_the_older_of_two_variables_is_read_when_the_newer_is_unset(tmp_path: Path) -> None:
    assert load(tmp_path, {"JOBQ_COORDINATOR_BATCH_SIZE": "5"}).coordinator.batch_size == 5
    both = {"JOBQ_COORDINATOR_BATCH_SIZE": "5", "JOBQ_COMPLETION_BATCH_SIZE": "6"}
    assert load(tmp_path, both).coordinator.batch_size == 6


def test_the_coordinator_has_the_nine_settings_of_ai4s_jobq() -> None:
    options = options_of(CoordinatorSettings)
    theirs = {name: option.default for name, option in options.items() if option.env[0].startswith("JOBQ_")}
    assert theirs == {
        "batch_size": 32,
        "visibility_timeout_s": 60.0,
        "idle_sleep_s": 0.5,
        "cancel_poll_interval_s": 1.0,
        "flush_retry_limit": 2,
        "ready_sweep_interval_s": 60.0,
        "ready_repair_threshold_s": 300.0,
        "running_timeout_s": None,
        "running_sweep_interval_s": 60.0,
    }
    assert options_of(WorkerSettings)["completion_attempts"].default == 5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2s", 2), ("500ms", 0.5), ("1.5m", 90), ("1h", 3600), ("30", 30), (7, 7), (0.5, 0.5), (" 3 s ", 3)],
)
def test_durations(text: Any, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1", "1 y", "1e3", None, True, [], "inf", float("nan"), 1e12])
def test_what_is_no_duration(text: Any) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


# --- targets


def test_local_and_queued_are_built_in(tmp_path: Path) -> None:
    settings = load(tmp_path, {"DAGKIT_SLOTS": "3"})

    assert settings.target().name == "local"
    assert settings.target("local").choice("anything").settings == (("slots", 3),)
    assert settings.target("queued").choice("anything").kind == "queued"


def test_queues_of_a_target_go_to_their_executors(tmp_path: Path) -> None:
    write(
        tmp_path / "dagkit.toml",
        """
        target = "mycluster"
        [targets.mycluster]
        default = "local"
        slots = 4
        [targets.mycluster.queues]
        gpu = "queued"
        [targets.mycluster.queues.io]
        executor = "local"
        slots = 16
        """,
    )
    target = load(tmp_path).target()

    assert target.name == "mycluster"
    assert target.choice("cpu").settings == (("slots", 4),)
    assert target.choice("gpu").kind == "queued"
    assert target.choice("io").settings == (("slots", 16),)


def test_an_unknown_target_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no target 'slurmy'; known: local, queued"):
        load(tmp_path).target("slurmy")
