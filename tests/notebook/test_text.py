from __future__ import annotations

from dagkit.notebook import graph
from dagkit.notebook.lettering import cells


def test_a_workflow_is_a_tree(sweep):
    assert graph.text(sweep) == "\n".join(
        [
            "sweep  133 tasks",
            "featurize        cpu",
            "├─ split         cpu",
            "└─ train × 128   gpu-a100",
            "   └─ compare    cpu       needs any 100 of 128",
            "      ├─ deploy  cpu       when compare.mae < 0.1",
            "      └─ report  cpu       also after split",
        ]
    )


def test_states_show_as_glyphs_and_counts(sweep, sweep_states):
    lines = graph.text(sweep, sweep_states).splitlines()

    assert lines[1].startswith("✓ featurize")
    assert " ".join(lines[3].split()) == "└─ ✗ train × 128 gpu-a100 ✓ 90 ✗ 2 ◐ 8 ○ 5 · 23"


def test_plain_branches_are_ascii(build):
    drawn = graph.text(build(("a", []), ("b", ["a"]), ("c", ["b"]), ("d", ["a"])), plain=True)

    assert drawn.isascii()
    assert drawn.splitlines()[1:] == ["a        cpu", "|- b     cpu", "|  `- c  cpu", "`- d     cpu"]


def test_details_join_the_notes(sweep):
    assert "median 38 s" in graph.text(sweep, details={"train × 128": "median 38 s"}).splitlines()[3]


def test_columns_stay_aligned_beside_wide_characters(build):
    lines = graph.text(build(("日本語", []), ("plain", []))).splitlines()[1:]

    assert len({cells(line.removesuffix("cpu")) for line in lines}) == 1


def test_a_long_chain_is_a_few_lines(chain):
    drawn = graph.text(chain(10_000))

    assert drawn.count("\n") == 6
    assert "… 9,995 more …" in drawn


def test_other_parents_are_named_and_then_counted(build):
    spec = build(*[(name, []) for name in "abcd"], ("end", ["a", "b", "c", "d"]))

    assert "also after a, b and 1 more" in graph.text(spec)


def test_control_characters_do_not_reach_the_terminal(build):
    assert "\x1b" not in graph.text(build(("a", [], {"queue": "q\x1b[31m"}), name="n\x1b"))
