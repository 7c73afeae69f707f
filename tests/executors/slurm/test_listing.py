from __future__ import annotations

import pytest

from dagkit.executors.slurm.listing import Ended, Listed, elements, read_sacct, read_squeue


@pytest.mark.parametrize(
    ("job", "found"),
    [
        ("12", ["12"]),
        ("12_3", ["12_3"]),
        ("12_[4]", ["12_4"]),
        ("12_[0-2,7]", ["12_0", "12_1", "12_2", "12_7"]),
        # a limit on how many run at a time
        ("12_[0-1%256]", ["12_0", "12_1"]),
        ("12_[3,5%2]", ["12_3", "12_5"]),
        # steps, as `--array=0-8:4` leaves them
        ("12_[0-8:4]", ["12_0", "12_4", "12_8"]),
        # cut short where SLURM_BITSTR_LEN was not heeded: what is there is read
        ("12_[0-1,...]", ["12_0", "12_1"]),
        # a heterogeneous job
        ("12+0", ["12+0"]),
    ],
)
def test_ids_of_elements(job: str, found: list[str]) -> None:
    assert list(elements(job)) == found


def test_squeue_is_read_with_arrays_written_out() -> None:
    text = "7|RUNNING|None|fit.a\n8_[0-1%9]|PENDING|Resources|fit.b\n8_2|RUNNING|None|fit.b\n"

    found = read_squeue(text)

    assert found == {
        "7": Listed("RUNNING", "None", "fit.a"),
        "8_0": Listed("PENDING", "Resources", "fit.b"),
        "8_1": Listed("PENDING", "Resources", "fit.b"),
        "8_2": Listed("RUNNING", "None", "fit.b"),
    }


def test_a_reason_with_bars_and_lines_that_are_no_rows_do_no_harm() -> None:
    text = "slurm_load_jobs warning\n\n7|PENDING|(Nodes required for job are DOWN, DRAINED)|a|b\n"

    assert read_squeue(text) == {"7": Listed("PENDING", "(Nodes required for job are DOWN, DRAINED)", "a|b")}


def test_sacct_is_read_with_what_its_steps_know() -> None:
    text = (
        "4|OUT_OF_MEMORY|0:125||12|n1|fit.a\n"
        "4.batch|OUT_OF_MEMORY|0:125|31104K|12|n1|batch\n"
        "4.0|FAILED|9:0|1.5M|11|n1|python\n"
        "5_[2-3]|PENDING|0:0||0|None assigned|fit.b\n"
        "5_1|CANCELLED by 1000|0:15||3|n2|fit.b\n"
    )

    found = read_sacct(text)

    assert found["4"] == Ended("OUT_OF_MEMORY", 0, 125, "fit.a", 31104 << 10, 12, "n1")
    assert found["5_2"] == found["5_3"] == Ended("PENDING", 0, 0, "fit.b", None, 0, None)
    assert found["5_1"] == Ended("CANCELLED", 0, 15, "fit.b", None, 3, "n2")
    assert set(found) == {"4", "5_1", "5_2", "5_3"}


def test_a_word_that_was_cut_is_still_a_word() -> None:
    assert read_sacct("4|CANCELLED+|0:0||0||x\n")["4"].state == "CANCELLED"
