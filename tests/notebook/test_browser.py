"""The live view as its user has it: a real JupyterLab in a real Chromium. Screenshots go to build/screenshots."""

from __future__ import annotations

import itertools
from pathlib import Path

import nbformat
import pytest

from services.jupyter import browser, jupyter_lab  # noqa: F401 - fixtures

pytestmark = pytest.mark.xdist_group("browser")

SHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"
SWEEP = """\
from dagkit import task, workflow
from pathlib import Path
import time

@task
def prepare(n):
    return n

@task(retries=1)
def train(n, seed, gate):
    for step in range(3):
        print(f"seed {seed}: step {step}", flush=True)
    while not Path(gate).exists():
        time.sleep(0.02)
    if seed in (7, 19):
        raise ValueError(f"batch of {seed} does not fit")
    return {"seed": seed, "mae": seed / 40}

@task
def compare(models):
    return min(m["mae"] for m in models if m)

@task
def deploy(best):
    return "deployed"

@workflow
def sweep(n, gate):
    data = prepare(n)
    models = [train(data, seed, gate) for seed in range(24)]
    best = compare.options(dep_policy=20)(models)
    return deploy.options(when=best < 0.1)(best)
"""
#: Ends every kernel of the server, as a reboot would.
SHUT_DOWN = """async () => {
  const url = (path) => `/api/${path}?token=for-tests`, xsrf = document.cookie.match(/_xsrf=([^;]*)/)?.[1];
  for (const one of await (await fetch(url("sessions"))).json())
    await fetch(url(`sessions/${one.id}`), { method: "DELETE", headers: { "X-XSRFToken": xsrf } });
}"""
_numbers = itertools.count(1)


@pytest.fixture
def lab(jupyter_lab, browser):  # noqa: F811
    """Opens notebooks of cells in pages; pages are closed and kernels stopped at the end."""
    pages = []

    def open_(*cells: str, dark: bool = False, width: int = 1400):
        name = f"watch-{next(_numbers)}.ipynb"
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, jupyter_lab.folder / name)
        page = browser.new_page(viewport={"width": width, "height": 1150}, color_scheme="dark" if dark else "light")
        page.set_default_timeout(30_000)
        pages.append(page)
        page.goto(jupyter_lab.page_of(name))
        ready(page)
        return page

    yield open_
    for page in pages:
        page.close()


def ready(page) -> None:
    """Wait until the kernel is there; a cell that is run before that is forgotten."""
    page.wait_for_function("document.querySelector('#jp-main-statusbar')?.innerText.includes('| Idle')", timeout=60_000)


def run_cell(page, number: int) -> None:
    page.click(f".jp-CodeCell >> nth={number} >> .cm-content")
    page.keyboard.press("Control+Enter")


def says(page, selector: str, words: str) -> None:
    page.wait_for_function(
        "([selector, words]) => [...document.querySelectorAll(selector)].some((n) => n.textContent.includes(words))",
        arg=[selector, words],
    )


def shoot(page, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    view = page.locator(".dagkit-view").last
    view.scroll_into_view_if_needed()
    view.screenshot(path=SHOTS / f"{name}.png", animations="disabled")


def test_a_run_is_watched_clicked_and_retried_while_the_cell_waits(lab, jupyter_lab):  # noqa: F811
    gate = jupyter_lab.folder / "gate-1"
    page = lab(SWEEP, "run = sweep(1, 'gate-1').run()", "run")
    run_cell(page, 0)
    run_cell(page, 1)

    page.wait_for_selector('.dk-box[data-key="train"][data-state="running"]')
    page.wait_for_selector('.dk-box[data-key="prepare"][data-state="completed"]')
    page.click('.dk-box[data-key="train"]')
    says(page, ".dk-find > span", "24 tasks")  # answered though the cell has not ended
    page.click('.dk-rows [data-task="train"]')
    page.click('[data-tab="log"]')
    says(page, ".dk-log", "seed 0: step 2")
    shoot(page, "running-log")

    gate.touch()
    says(page, ".dk-status", "failed")
    page.click('.dk-trouble button:has-text("train-19")')
    says(page, ".dk-error", "batch of 19 does not fit")
    shoot(page, "failed-error")
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
    says(page, ".dk-note", "2 tasks will run again")
    says(page, ".dk-status", "failed")


def test_a_run_is_cancelled_and_seen_again_after_the_page_was_loaded_anew(lab):
    page = lab(SWEEP, "run = sweep(1, 'never').run(wait=False)\nrun")
    run_cell(page, 0)
    run_cell(page, 1)
    page.wait_for_selector('.dk-box[data-key="train"][data-state="running"]')
    page.click('.dk-box[data-key="train"]')
    says(page, ".dk-find > span", "24 tasks")
    page.keyboard.press("Control+s")
    page.wait_for_timeout(500)

    page.reload()
    ready(page)
    page.wait_for_selector('.dk-box[data-key="train"][data-state="running"]')
    says(page, ".dk-find > span", "24 tasks")  # what was chosen is kept by the kernel
    page.click('[data-do="cancel"]')
    says(page, ".dk-ask", "have not begun")
    shoot(page, "confirm-cancel")
    page.click('.dk-ask button:has-text("Cancel the run")')
    says(page, ".dk-status", "cancelled")
    shoot(page, "cancelled")


def test_after_the_kernel_was_started_anew_the_run_can_be_attached_to(lab):
    page = lab(SWEEP, "sweep(1, '.').run(id='again', wait=True)", "import dagkit\ndagkit.attach('again')")
    run_cell(page, 0)
    run_cell(page, 1)
    says(page, ".dk-status", "failed")

    page.click('[data-command="kernelmenu:restart"], .jp-ToolbarButtonComponent[aria-label*="estart"] >> nth=0')
    page.click('.jp-Dialog button:has-text("Restart")')
    ready(page)
    run_cell(page, 2)

    says(page, ".jp-Cell:nth-of-type(3) .dk-status, [data-windowed-list-index='2'] .dk-status", "failed")


def test_of_a_saved_notebook_whose_kernel_is_gone_the_still_picture_is_seen(lab):
    """JupyterLab shows 'model not found' for a widget without a kernel, and nothing else of the same output."""
    page = lab(SWEEP.replace("{seed} does", "<b>{seed}</b> does"), "run = sweep(1, '.').run()")
    run_cell(page, 0)
    run_cell(page, 1)
    says(page, ".dk-trouble", "batch of <b>19</b> does not fit")  # text, never markup
    says(page, ".dk-status", "failed")
    assert not page.is_visible(".dagkit-run")
    page.keyboard.press("Control+s")
    page.wait_for_selector(".jp-mod-current:not(.jp-mod-dirty)")

    page.evaluate(SHUT_DOWN)
    page.reload()
    ready(page)

    page.wait_for_selector(".dagkit-run .dagkit-graph")
    assert not page.is_visible("text=model not found")


@pytest.mark.parametrize(
    ("name", "dark", "width"), [("dark", True, 1400), ("narrow", False, 760), ("dark-narrow", True, 620)]
)
def test_it_is_drawn_in_light_and_dark_wide_and_narrow(lab, name, dark, width):
    page = lab(SWEEP, "run = sweep(1, '.').run()", dark=dark, width=width)
    if dark:
        page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    if width < 1000:
        page.keyboard.press("Control+b")
    run_cell(page, 0)
    run_cell(page, 1)

    says(page, ".dk-status", "failed")
    page.click('.dk-rows [data-task="train-7"]')
    says(page, ".dk-short", "attempt 2 of 2")

    shoot(page, name)
    widths = page.evaluate(
        "(() => { const v = document.querySelector('.dagkit-view'); return [v.scrollWidth, v.clientWidth]; })()"
    )
    assert widths[0] <= widths[1] + 1
