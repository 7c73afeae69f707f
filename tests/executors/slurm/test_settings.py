"""From dagkit.toml and a task's resources to the script that sbatch is given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dagkit.config import load_settings
from dagkit.config.slurm import SLURM_OPTIONS
from dagkit.errors import ConfigError
from dagkit.executors.slurm.executor import SlurmExecutor
from dagkit.executors.slurm.request import SlurmQueue, request_of
from dagkit.executors.slurm.script import job_name, script_of
from dagkit.stores.base import Store
from dagkit.testing import FakeSlurm, MemoryStore
from executors.driving import message

ROOT = Path(__file__).parents[3]


def request(settings: SlurmQueue | None = None, **resources: Any) -> dict[str, Any]:
    made = request_of(message("a", {"cmd": "true"}, resources=resources, template="t"), settings or SlurmQueue())
    return dict(made.options)


@pytest.mark.parametrize(
    ("resources", "options"),
    [
        ({"memory": "1.5G", "cores": 4}, {"mem": "1536M", "cpus-per-task": 4}),
        # always rounded up, to what Slurm counts in
        ({"memory": 1}, {"mem": "1M"}),
        ({"runtime": "61s"}, {"time": 2}),
        ({"runtime": "1-00:00:00"}, {"time": 1440}),
        ({"gpus": 2, "nodes": 3}, {"gpus-per-node": 2, "nodes": 3}),
        ({"gpus": 0}, {}),
        ({"extra": {"ntasks": 8, "mail_type": "END", "exclusive": True, "contiguous": False}},
         {"ntasks": 8, "mail-type": "END", "exclusive": True}),
    ],
)  # fmt: skip
def test_resources_become_options(resources: dict[str, Any], options: dict[str, Any]) -> None:
    assert request(**resources) == options


def test_what_a_task_asks_for_wins_over_what_its_queue_says() -> None:
    settings = SlurmQueue(partition="gpu", sbatch=(("mail-type", "FAIL"), ("nice", 5)))

    assert request(settings, extra={"partition": "debug", "nice": 9}) == {
        "mail-type": "FAIL",
        "nice": 9,
        "partition": "debug",
    }


def test_a_timeout_alone_asks_for_a_little_more_time() -> None:
    made = request_of(message("a", {"cmd": "true"}, timeout_s=600), SlurmQueue())

    assert dict(made.options) == {"time": 11}


def test_packed_tasks_ask_for_the_time_of_all_of_them() -> None:
    assert request(SlurmQueue(pack=20), runtime="30s") == {"time": 10}


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({"extra": {"output": "/tmp/x"}}, "set by dagkit itself"),
        ({"extra": {"-x; rm": 1}}, "long name"),
        ({"extra": {"comment": "a\n#SBATCH --uid=0"}}, "no text"),
        ({"extra": {"comment": ["a"]}}, "no text"),
        ({"extra": {"ntasks": 0}}, "whole number"),
        ({"extra": {"pack": "many"}}, "whole number"),
    ],
)
def test_what_cannot_be_passed_on_is_named(resources: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        request(**resources)


def script(settings: SlurmQueue, tmp_path: Path, count: int = 3, **resources: Any) -> str:
    made = request_of(message("a", {"cmd": "true"}, resources=resources, template="t"), settings)
    return script_of(made, "t.1f", tmp_path, count, ["-m", "dagkit.executors.job", "a b", "0"])


def test_the_script_has_every_setting(tmp_path: Path) -> None:
    settings = SlurmQueue(
        partition="gpu",
        account="me",
        qos="high",
        constraint="a100",
        gres="gpu:1",
        setup=("export A='b c'",),
        modules=("cuda/12", "x y"),
        container="apptainer exec --nv 'my image.sif'",
        python="/opt/python",
        notice_s=90,
        parallelism=2,
    )

    lines = script(settings, tmp_path, memory="2G").splitlines()

    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", "\n".join(lines), re.MULTILINE))
    assert options.pop("error").startswith(str(tmp_path))
    assert options.pop("output").startswith(str(tmp_path))
    assert options == {
        "array": "0-2%2",
        "partition": "gpu",
        "account": "me",
        "qos": "high",
        "constraint": "a100",
        "gres": "gpu:1",
        "mem": "2048M",
        "job-name": "t.1f",
        "open-mode": "append",
        "signal": "B:USR1@90",
    }
    assert "#SBATCH --requeue" in lines
    begin = lines.index("module load cuda/12")
    assert lines[begin + 1 : begin + 3] == ["module load 'x y'", "export A='b c'"]
    assert lines[-1] == "exec apptainer exec --nv 'my image.sif' /opt/python -m dagkit.executors.job 'a b' 0"


def test_srun_is_used_where_it_is_asked_for(tmp_path: Path) -> None:
    text = script(SlurmQueue(srun=True), tmp_path)

    assert "exec srun --unbuffered --kill-on-bad-exit=1 " in text
    assert "--signal=USR1@60" in text
    assert "exec srun" not in script(SlurmQueue(), tmp_path)


def test_a_single_job_is_no_array(tmp_path: Path) -> None:
    assert "--array" not in script(SlurmQueue(), tmp_path, count=1)


def test_a_folder_with_a_percent_sign_stays_one_folder(tmp_path: Path) -> None:
    text = script(SlurmQueue(), tmp_path / "50%A")

    assert f"--error={tmp_path}/50%%A/%A_%a_0_log.err" in text


def test_names_of_jobs_are_plain_and_start_with_a_letter() -> None:
    assert job_name("fit", "1f") == "fit.1f"
    assert job_name("7 über/x;y", "1f") == "t7-ber-x-y.1f"
    assert len(job_name("x" * 500, "1f")) < 80


# --- dagkit.toml


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    fake = FakeSlurm(tmp_path / "slurm")
    monkeypatch.setenv("PATH", fake.environment["PATH"])
    return fake


def settings(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "dagkit.toml"
    path.write_text(text)
    return load_settings(config=path, environ={}, cwd=tmp_path)


def test_queues_of_a_target_share_one_executor_with_a_partition_each(
    tmp_path: Path, store: Store, fake: FakeSlurm
) -> None:
    target = settings(
        tmp_path,
        "[targets.hpc]\ndefault = 'slurm'\npartition = 'cpu'\nlook_s = '5s'\ncollect_s = 0\n"
        "[targets.hpc.queues]\nhere = 'local'\n"
        "gpu = {executor = 'slurm', partition = 'a100', sbatch = {nice = 3}}\n",
    ).target("hpc")

    route = target.route(store)
    executor = route("gpu")
    executor.submit([message("a", {"cmd": "true"}, queue="gpu"), message("b", {"cmd": "true"}, queue="other")])

    assert route("other") is executor
    assert route("here") is not executor
    assert isinstance(executor, SlurmExecutor)
    scripts = {job.name.partition(".")[0]: job.script for job in fake.jobs()}
    assert "--partition=a100" in scripts["a"]
    assert "--nice=3" in scripts["a"]
    assert "--partition=cpu" in scripts["b"]
    route.close()


def test_the_target_slurm_is_there_without_a_file(tmp_path: Path, store: Store, fake: FakeSlurm) -> None:
    route = load_settings(environ={}, cwd=tmp_path).target("slurm").route(store)

    assert isinstance(route("default"), SlurmExecutor)
    route.close()


def test_where_there_is_no_slurm_it_says_so(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ConfigError, match="login node"):
        load_settings(environ={}, cwd=tmp_path).target("slurm").route(store)("default")


def test_a_store_in_memory_is_refused(tmp_path: Path, fake: FakeSlurm) -> None:
    with pytest.raises(ConfigError, match="nodes share"):
        load_settings(environ={}, cwd=tmp_path).target("slurm").route(MemoryStore())("default")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("partition = 3", "not a text of one line"),
        ("pack = 0", "whole number"),
        ("sbatch = {array = '0-3'}", "set by dagkit itself"),
        ("setup = 4", "list of texts"),
        ("srun = 'yes'", "neither true nor false"),
        ("partitoin = 'x'", "partition"),
    ],
)
def test_a_wrong_setting_is_named_with_its_place(tmp_path: Path, setting: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        settings(tmp_path, f"[targets.hpc.queues.gpu]\nexecutor = 'slurm'\n{setting}\n")

    assert "dagkit.toml" in str(caught.value)


def test_the_settings_that_the_how_to_shows_are_read(tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/slurm.md").read_text()
    (shown,) = re.findall(r'```toml title="dagkit.toml"\n(.*?)```', page, re.DOTALL)

    target = settings(tmp_path, shown).target("hpc")

    assert dict(target.choice("gpu").settings)["container"].startswith("apptainer")
    named = set(
        re.findall(r"`(\w+)`", "\n".join(line.split("|")[1] for line in page.splitlines() if line[:3] == "| `"))
    )
    shown_below = set(re.findall(r"`(\w+)`", page.partition("For the whole target:")[2].partition("\n\n")[0]))
    assert set(SLURM_OPTIONS) <= named | shown_below | {"files_s", "short_grace_s"}


def test_the_settings_of_the_examples_are_read(tmp_path: Path) -> None:
    text = (ROOT / "examples/slurm/dagkit.toml").read_text()

    assert settings(tmp_path, text).target("cluster").choice("login").kind == "local"
    assert settings(tmp_path, re.sub(r"^# (\w+ =)", r"\1", text, flags=re.MULTILINE)).target("cluster")
