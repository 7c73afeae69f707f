from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from dagkit.model.records import Counts
from dagkit.notebook import graph, mermaid
from dagkit.notebook.picture import Box, Picture


def test_a_workflow_is_a_flowchart(build):
    spec = build(("load", []), ("fit", ["load"], {"condition": "inputs.load > 1"}))

    assert graph.mermaid(spec).splitlines() == [
        "flowchart TD",
        '  n0["load<br/>cpu"]',
        '  n1["fit<br/>cpu<br/>when load #62; 1"]',
        "  n0 --> n1",
        "  classDef conditional stroke-dasharray: 4 3",
        "  class n1 conditional",
    ]


def test_states_colour_the_boxes(sweep, sweep_states):
    drawn = graph.mermaid(sweep, sweep_states)

    assert "✗ train × 128" in drawn
    assert "style n2 stroke:#d55e00" in drawn


@given(st.text(min_size=1, max_size=40))
def test_no_name_can_end_its_label(name):
    drawn = mermaid.draw(Picture("p", (Box("k", name, (name,), 'a"] --> b'),), (), 1), [Counts(pending=1)])

    label = drawn.splitlines()[1]
    assert re.fullmatch(r'  n0\["[^"\[\]<>`]*(<br/>[^"\[\]<>`]*)*"\]', label)
