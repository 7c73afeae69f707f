from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagkit.model.records import Counts
from dagkit.model.states import TaskState
from dagkit.notebook import graph, svg
from dagkit.notebook.palette import COLOURS
from dagkit.notebook.picture import Box, Picture

NS = "{http://www.w3.org/2000/svg}"


def texts(drawing):
    return ["".join(element.itertext()) for element in ET.fromstring(drawing).iter(f"{NS}text")]


def test_a_workflow_shows_names_queues_and_conditions(sweep):
    words = texts(graph.svg(sweep))

    assert "sweep133 tasks" in words
    assert {"featurize", "train × 128", "gpu-a100", "needs any 100 of 128", "when compare.mae < 0.1"} <= set(words)


def test_a_conditional_box_is_dashed_and_a_map_has_a_card_behind(sweep):
    drawing = graph.svg(sweep)

    assert drawing.count('stroke-dasharray="4 3"') == 1
    assert len(re.findall(r'<rect x="4" y="4"', drawing)) == 1


def test_states_show_as_glyphs_and_a_bar_in_the_order_of_the_vocabulary(sweep, sweep_states):
    drawing = graph.svg(sweep, sweep_states)

    assert {"✓ featurize", "✗ train × 128", "· compare"} <= set(texts(drawing))
    segments = re.findall(r'<path d="[^"]*z" class="[^"]*" fill="(#\w+)"', drawing)
    assert segments == [COLOURS[TaskState(s)] for s in ("completed", "failed", "running", "ready", "pending")]


def test_the_legend_counts_the_whole_workflow(sweep, sweep_states):
    assert {"✓ completed 92", "✗ failed 2", "· pending 26"} <= set(texts(graph.svg(sweep, sweep_states)))
    assert "✓ completed 92" not in texts(graph.svg(sweep, sweep_states, heading=False))


def test_details_join_the_second_line(sweep):
    assert "gpu-a100 · median 38 s" in texts(graph.svg(sweep, details={"train × 128": "median 38 s"}))


def test_it_follows_the_system_and_the_theme_of_the_front_end(sweep):
    drawing = graph.svg(sweep)

    assert "prefers-color-scheme:dark" in drawing
    for selector in (
        '[data-jp-theme-light="false"]',
        '[data-jp-theme-light="true"]',
        ".vscode-dark",
        'html[theme="dark"]',
    ):
        assert selector in drawing


def test_it_reads_where_style_sheets_are_stripped(sweep, sweep_states):
    bare = ET.fromstring(re.sub(r"<style>.*?</style>", "", graph.svg(sweep, sweep_states)))

    assert all(element.get("fill") and element.get("font-size") for element in bare.iter(f"{NS}text"))
    assert all(
        element.get("fill") and element.get("stroke")
        for element in bare.iter(f"{NS}rect")
        if element.get("stroke-width")
    )


def test_it_needs_nothing_from_outside(sweep):
    drawing = graph.svg(sweep).replace("http://www.w3.org/2000/svg", "")

    assert not re.search(r"https?:|url\(|@import|href|<script", drawing)


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=60), st.text(max_size=60))
def test_hostile_names_stay_text(name, queue):
    hostile = f"<script>{name}</script>\"'&]]>"
    picture = Picture(hostile, (Box(hostile, hostile, (hostile,), queue, when=hostile),), (), 1)

    drawn = ET.fromstring(svg.draw(picture, [Counts(failed=1)], {hostile: hostile}))

    assert not list(drawn.iter(f"{NS}script"))
    assert len(list(drawn.iter(f"{NS}style"))) == 1


@given(st.lists(st.integers(0, 10_000), min_size=8, max_size=8).filter(any))
def test_a_bar_is_exactly_as_wide_as_its_box_allows(numbers):
    counts = Counts(*numbers)

    ends = re.findall(r"M([\d.]+) [\d.]+H([\d.]+)(a|v)", svg._bar(counts, 0.0, 0.0, 160.0))

    assert len(ends) == sum(number > 0 for number in numbers)
    assert float(ends[-1][1]) == pytest.approx(157.0, abs=2.1)


def test_a_drawing_of_a_hundred_thousand_tasks_is_as_small_as_one_of_a_thousand(lattice):
    small, large = graph.svg(lattice(10, 100)), graph.svg(lattice(10, 1_000))

    assert len(large) < 1.1 * len(small) < 20_000
