from __future__ import annotations

from types import SimpleNamespace

from dagkit.notebook import graph


def test_a_flow_or_run_is_drawn_by_its_definition(sweep):
    assert graph.svg(SimpleNamespace(spec=sweep)) == graph.svg(sweep)


def test_a_picture_can_be_kept_and_drawn_again(sweep, sweep_states):
    kept = graph.picture(sweep)

    assert graph.picture(kept) is kept
    assert graph.text(kept, sweep_states) == graph.text(sweep, sweep_states)


def test_a_notebook_gets_html_an_image_and_text(sweep):
    bundle = graph.mimebundle(sweep)

    assert bundle["image/svg+xml"] in bundle["text/html"]
    assert bundle["text/plain"] == graph.text(sweep)
