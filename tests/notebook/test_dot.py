from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagkit.errors import BackendError, UsageError
from dagkit.model.records import Counts
from dagkit.notebook import dot, graph
from dagkit.notebook.picture import Box, Picture


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a `dot` made of Python lines on an otherwise empty PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def install(*lines: str) -> None:
        file = tmp_path / "dot"
        file.write_text("\n".join([f"#!{sys.executable}", "import sys", *lines]))
        file.chmod(0o755)

    return install


def test_a_workflow_is_a_digraph(sweep, sweep_states):
    drawn = graph.dot(sweep, sweep_states)

    assert drawn.startswith('digraph "sweep" {')
    assert drawn.endswith("}\n")
    assert '  n2 [label="✗ train × 128\\ngpu-a100", peripheries=2, color="#d55e00"];' in drawn
    assert 'style="rounded,dashed"' in drawn
    assert "  n0 -> n1;" in drawn


@given(st.text(min_size=1, max_size=40))
def test_no_name_can_end_its_string(name):
    hostile = f'{name}\\"]; evil -> x [label="'
    drawn = dot.draw(Picture(hostile, (Box("k", hostile, (hostile,), hostile),), (), 1), [Counts(failed=1)])

    for line in (drawn.splitlines()[0], drawn.splitlines()[4]):
        outside = line.replace("\\\\", "").replace('\\"', "").split('"')[::2]
        assert "evil" not in "".join(outside)


def test_dot_lays_out_what_it_is_given(program):
    program("print(sys.argv[1], sys.stdin.read()[:7])")

    assert dot.render("digraph {}", "png") == b"-Tpng digraph\n"


def test_without_dot_one_is_told_that_it_is_not_needed(program):
    with pytest.raises(UsageError, match=r"dot. program is not installed.*draws without it"):
        dot.render("digraph {}")


def test_a_failing_dot_is_quoted(program):
    program("sys.exit('syntax error in line 1')")

    with pytest.raises(BackendError, match="exit code 1: syntax error in line 1"):
        dot.render("nonsense")
