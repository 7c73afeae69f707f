"""The live view as its user has it: a real JupyterLab in a real Chromium. Screenshots go to build/screenshots.

`pytest tests/notebook/test_browser.py --save-shown` also saves those that README and docs show, to docs/images.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from services.jupyter import browser, desk, execute, jupyter_lab  # noqa: F401 - fixtures

pytestmark = pytest.mark.xdist_group("browser")

ROOT = Path(__file__).resolve().parents[2]
SHOTS, IMAGES = ROOT / "build" / "screenshots", ROOT / "docs" / "images"
SWEEP = """\
from dagkit import task, workflow
from pathlib import Path
import time

@task
def prepare(n):
    return list(range(n))

@task(retries=1, memory="1G")
def train(n, seed, gate):
    for step in range(3):
        print(f"seed {seed}: step {step}", flush=True)
    if seed == 2 and gate.startswith("gate"):
        print("\\n" * 60, end="line of the end\\n", flush=True)
    while seed > 1 and not Path(gate).exists():
        time.sleep(0.02)
    if seed in (7, 19):
        raise ValueError(f"batch of {seed} does not fit")
    return {"seed": seed, "mae": seed / 40}

@task
def compare(models):
    return min(m["mae"] for m in models if m)

@task
def report(models):
    return f"{len(models)} models"

@task
def deploy(best):
    return "deployed"

@workflow
def sweep(n, gate):
    data = prepare(n)
    models = [train(data, seed, gate) for seed in range(24)]
    best = compare.options(dep_policy=20)(models)
    report(models)
    deploy.options(when=best < 0.1)(best)
"""


def says(page, selector: str, words: str) -> None:
    page.wait_for_function(
        "([selector, words]) => [...document.querySelectorAll(selector)].some((n) => n.textContent.includes(words))",
        arg=[selector, words],
    )


def counts_time(page, task: str) -> None:
    """How long it has been running is shown while it runs."""
    page.wait_for_function(
        "(task) => /\\d/.test(document.querySelector(`.dk-rows [data-task='${task}'] .dk-time`)?.textContent)", arg=task
    )


@pytest.fixture
def shoot(request):
    """Takes a picture of the last view; one that the docs show is saved for them if that is asked for."""

    def take(page, name: str, image: str = "") -> None:
        folder = IMAGES if image and request.config.getoption("--save-shown") else SHOTS
        folder.mkdir(parents=True, exist_ok=True)
        view = page.locator(".dagkit-view, .dagkit-run").last
        view.scroll_into_view_if_needed()
        view.screenshot(path=folder / f"{image or name}.png", animations="disabled")
        assert (folder / f"{image or name}.png").stat().st_size < 200_000

    return take


def test_a_run_is_watched_clicked_and_retried_while_the_cell_waits(desk, shoot):  # noqa: F811
    page = desk.open(SWEEP, "run = sweep(1, 'gate-1').run()", "run")
    desk.run(0, 1)

    page.wait_for_selector('.dk-box[data-key="train"][data-state="running"]')
    page.wait_for_selector('.dk-box[data-key="prepare"][data-state="completed"]')
    page.click('.dk-box[data-key="train"]')
    says(page, ".dk-find > span", "24 tasks")  # answered though the cell has not ended
    page.click('.dk-rows [data-task="train-2"]')
    counts_time(page, "train-2")
    page.click('[data-tab="log"]')
    says(page, ".dk-log", "line of the end")
    assert not page.is_visible(".dk-end")
    page.evaluate("() => { document.querySelector('.dk-log').scrollTop = 0; }")
    page.click(".dk-end")  # who scrolled up follows again with a click
    page.wait_for_function("() => document.querySelector('.dk-log').scrollTop > 0")
    page.evaluate("() => { document.querySelector('.dk-log').scrollTop = 0; }")
    page.wait_for_selector(".dk-end")
    shoot(page, "running-log")
    page.click('[data-tab="tasks"]')
    shoot(page, "running", "watch-running")

    (desk.lab.folder / "gate-1").touch()
    says(page, ".dk-status", "failed")
    page.click('.dk-trouble button:has-text("train-19")')
    says(page, ".dk-error", "batch of 19 does not fit")
    says(page, ".dk-error", "attempt 1 failed (user)")
    shoot(page, "failed-error", "watch-failed")
    page.click('[data-do="retry"]')
    says(page, ".dk-ask", "Retry 2 tasks that failed")
    shoot(page, "confirm-retry")
    page.click('.dk-ask button:has-text("Leave it")')
    page.click('[data-tab="tasks"]')
    page.click('.dk-rows [data-task="train-1"]')
    page.click('[data-tab="result"]')
    says(page, ".dk-result", "'mae': 0.025")
    page.click('[data-do="rerun"]')
    says(page, ".dk-ask", "again?")
    page.click('.dk-ask button:has-text("Leave it")')
    page.click('[data-do="retry"]')
    page.click('.dk-ask .dk-main:has-text("Retry")')
    says(page, ".dk-note", "will run again")
    says(page, ".dk-status", "failed")


def test_usage_events_and_filters_of_a_run(desk, shoot):  # noqa: F811
    page = desk.open(SWEEP, "run = sweep(1, '.').run()")
    desk.run(0, 1)
    says(page, ".dk-status", "failed")

    page.click('[data-tab="events"]')
    says(page, ".dk-event", "batch of 7 does not fit")
    says(page, ".dk-event", "submitted: 28 tasks")
    shoot(page, "events", "watch-events")
    page.click('.dk-event:has-text("train-7 ValueError")')
    says(page, ".dk-error", "batch of 7 does not fit")
    page.click('[data-tab="usage"]')
    says(page, ".dk-grid td", "22 of 24")
    says(page, ".dk-grid td", "failed (user)")
    says(page, ".dk-grid td", "memory 1G")
    shoot(page, "usage")
    page.click('.dk-grid tr:has-text("failed (user)") >> nth=0')
    page.wait_for_selector('.dk-which button[aria-pressed="true"]:has-text("1")')
    says(page, ".dk-log", "seed 7: step 2")
    shoot(page, "log-of-attempt")

    page.click('.dk-chip:has-text("failed")')
    says(page, ".dk-find > span", "2 tasks")
    page.fill(".dk-find input", "batch of 19")
    says(page, ".dk-find > span", "1 task")
    shoot(page, "filtered")
    page.fill(".dk-find input", "")
    page.click('.dk-chip:has-text("failed")')
    page.click(".dk-order")
    page.wait_for_function("() => document.querySelector('.dk-rows .dk-row')?.dataset.task === 'prepare'")


def test_a_run_is_cancelled_and_seen_again_after_the_page_was_loaded_anew(desk, shoot):  # noqa: F811
    page = desk.open(SWEEP, "run = sweep(1, 'never').run(wait=False)\nrun")
    desk.run(0, 1)
    page.wait_for_selector('.dk-box[data-key="train"][data-state="running"]')
    page.click('.dk-box[data-key="train"]')
    says(page, ".dk-find > span", "24 tasks")
    desk.save()

    desk.reload()
    page.wait_for_selector('.dk-box[data-key="train"][data-state="running"]')
    says(page, ".dk-find > span", "24 tasks")  # what was chosen is kept by the kernel
    counts_time(page, "train-3")
    page.click('[data-do="cancel"]')
    says(page, ".dk-ask", "have not begun")
    shoot(page, "confirm-cancel", "watch-cancel")
    page.click('.dk-ask button:has-text("Cancel the run")')
    says(page, ".dk-status", "cancelled")
    shoot(page, "cancelled")


THREADS = "import threading\nprint('views:', sum(t.name == 'dagkit-view' for t in threading.enumerate()))"


def test_two_views_of_a_run_are_apart_and_a_view_that_is_closed_leaves_no_thread(desk):  # noqa: F811
    page = desk.open(SWEEP, "run = sweep(1, 'never').run(wait=False)\nrun", "run", THREADS)
    desk.run(0, 1, 2)
    page.wait_for_function("() => document.querySelectorAll('.dagkit-view').length === 2")
    first, second = page.locator(".dagkit-view").first, page.locator(".dagkit-view").last
    second.locator('.dk-box[data-key="train"]').click()
    says(page, ".dagkit-view .dk-find > span", "24 tasks")
    assert "28 tasks" in first.locator(".dk-find").inner_text()

    first.locator('[data-do="cancel"]').click()
    first.locator('.dk-ask button:has-text("Cancel the run")').click()
    for view in (first, second):
        view.locator('.dk-status:has-text("cancelled")').wait_for()
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    page.wait_for_function("() => !document.querySelector('.dagkit-view')")

    deadline = 20
    for _ in range(deadline):
        desk.run(3)
        page.wait_for_selector(".jp-OutputArea-output:has-text('views:')")
        if "views: 0" in page.inner_text(".jp-OutputArea-output:has-text('views:')"):
            break
        page.wait_for_timeout(250)
    says(page, ".jp-OutputArea-output", "views: 0")
    desk.run(2)  # opened again
    says(page, ".dk-status", "cancelled")


def test_of_a_saved_notebook_whose_kernel_is_gone_the_still_picture_is_seen(desk, browser, shoot):  # noqa: F811
    """JupyterLab shows 'model not found' for a widget without a kernel, and nothing else of the same output."""
    page = desk.open(SWEEP.replace("{seed} does", "<b>{seed}</b> does"), "run = sweep(1, '.').run(id='gone')")
    desk.run(0, 1)
    says(page, ".dk-trouble", "batch of <b>19</b> does not fit")  # text, never markup
    says(page, ".dk-status", "failed")
    assert not page.is_visible(".dagkit-run")
    page.wait_for_selector(".jp-InputPrompt:has-text('[*]')", state="detached")
    saved = desk.save()

    desk.shut_kernels_down()
    desk.reload()

    page.wait_for_selector(".dagkit-run .dagkit-graph")
    assert not page.is_visible("text=model not found")
    assert_reads_well_as_a_page(saved, browser, shoot)


def assert_reads_well_as_a_page(saved, browser, shoot) -> None:  # noqa: F811
    """What nbconvert makes of the file, in a browser that reaches nothing: no script of Jupyter's, no kernel."""
    from nbconvert import HTMLExporter

    html, _ = HTMLExporter().from_notebook_node(saved)
    page = browser.new_page(viewport={"width": 1100, "height": 1400}, java_script_enabled=False)
    page.route("**/*", lambda route: route.abort())
    page.set_content(html, wait_until="domcontentloaded")
    assert page.is_visible(".dagkit-run .dagkit-graph")
    assert "✗ train × 24" in page.text_content(".dagkit-run .dagkit-graph")
    assert "batch of <b>7</b> does not fit" in page.inner_text(".dagkit-run")
    assert page.locator(".dagkit-run table tbody tr").count() == 5
    shoot(page, "nbconvert")
    page.close()


def test_after_the_kernel_was_started_anew_the_run_can_be_attached_to(desk):  # noqa: F811
    page = desk.open(SWEEP, "sweep(1, '.').run(id='again', wait=True)", "import dagkit\ndagkit.attach('again')")
    desk.run(0, 1)
    says(page, ".dk-status", "failed")

    desk.restart_kernel()
    desk.run(2)

    says(page, ".jp-Cell:nth-of-type(3) .dk-status, [data-windowed-list-index='2'] .dk-status", "failed")


@pytest.mark.parametrize(
    ("name", "dark", "width", "image"),
    [("dark", True, 1400, "watch-dark"), ("narrow", False, 760, ""), ("dark-narrow", True, 620, "")],
)
def test_it_is_drawn_in_light_and_dark_wide_and_narrow(desk, shoot, name, dark, width, image):  # noqa: F811
    page = desk.open(SWEEP, "run = sweep(1, '.').run()", dark=dark, width=width)
    if width < 1000:
        page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    desk.run(0, 1)

    says(page, ".dk-status", "failed")
    page.click('.dk-rows [data-task="train-7"]')
    says(page, ".dk-short", "attempt 2 of 2")

    shoot(page, name, image)
    for tab in ("tasks", "usage", "events"):
        page.click(f'[data-tab="{tab}"]')
        widths = page.evaluate(
            "(() => { const v = document.querySelector('.dagkit-view'); return [v.scrollWidth, v.clientWidth]; })()"
        )
        assert widths[0] <= widths[1] + 1


WIDE = """\
from dagkit import task, workflow

def named(name):
    def step(*values):
        return name
    step.__name__ = name
    return task(step)

@workflow
def wide():
    first = named("first")()
    return named("last")(*[named(letter * 8)(first) for letter in "abcdefghi"])

run = wide().run()
"""


def test_a_wide_graph_is_not_drawn_smaller_than_can_be_read(desk, shoot):  # noqa: F811
    """Nine boxes beside each other were drawn in the half of a view, with letters of four pixels."""
    page = desk.open(WIDE)
    desk.run(0)
    says(page, ".dk-status", "completed")

    letters = page.evaluate("() => document.querySelector('.dk-box text').getBoundingClientRect().height")
    assert letters > 9
    shoot(page, "wide")
    page.click('.dk-box[data-key="iiiiiiii"]')  # scrolled to
    says(page, ".dk-find > span", "1 task")


def test_notebook_7_draws_it_too(desk, browser, shoot):  # noqa: F811
    desk.lab.write("seven.ipynb", SWEEP, "run = sweep(1, '.').run()")
    page = browser.new_page(viewport={"width": 1280, "height": 1150})
    page.set_default_timeout(30_000)
    page.goto(desk.lab.page_in_notebook_7("seven.ipynb"))
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status='idle']")
    for number in (0, 1):
        execute(page, number)

    says(page, ".dk-status", "failed")
    page.click('.dk-box[data-key="train"]')
    page.click('.dk-rows [data-task="train-19"]')
    page.click('[data-tab="error"]')
    says(page, ".dk-error", "batch of 19 does not fit")
    shoot(page, "notebook-7")
    page.close()
