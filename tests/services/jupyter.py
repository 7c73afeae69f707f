"""A real JupyterLab and a real Chromium, on the loopback only: one of each, one page and one kernel for many tests."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest

from services.processes import die_with_parent, free_ports, require, wait_until

__all__ = ["CHROMIUM_FLAGS", "Desk", "Lab", "browser", "desk", "execute", "jupyter_lab"]

CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab; notebooks live in `folder`."""

    url: str
    token: str
    folder: Path

    def page_of(self, notebook: str) -> str:
        """Address that opens a notebook of the folder alone."""
        return f"{self.url}/lab/tree/{notebook}?token={self.token}&reset"

    def page_in_notebook_7(self, notebook: str) -> str:
        """The same notebook in the other front end of the server."""
        return f"{self.url}/notebooks/{notebook}?token={self.token}"

    def write(self, name: str, *cells: str) -> None:
        """Make a notebook of cells that have not been executed."""
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, self.folder / name)


def _settings(folder: Path) -> dict[str, str]:
    """Directories of Jupyter and of the browser in a folder that goes with the session."""
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "JUPYTERLAB_SETTINGS_DIR")
    return {**os.environ, "HOME": str(folder), **{name: str(folder / name.lower()) for name in names}}


@pytest.fixture(scope="session")
def jupyter_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab of this Python, killed with the session however that ends."""
    program = require("jupyter-lab", Path(sys.executable).parent)
    home, folder = tmp_path_factory.mktemp("jupyter-home"), tmp_path_factory.mktemp("notebooks")
    (port,), token = free_ports(1), "for-tests"
    command = [
        program,
        "--no-browser",
        "--allow-root",
        f"--ServerApp.token={token}",
        f"--port={port}",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.root_dir={folder}",
        "--expose-app-in-browser",
        "--LabApp.news_url=",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--log-level=ERROR",
    ]
    quiet = home / "jupyterlab_settings_dir" / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    quiet.parent.mkdir(parents=True)
    quiet.write_text('{"fetchNews": "false", "checkForUpdates": false}')
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            command, env=_settings(home), stdout=log, stderr=log, cwd=folder, preexec_fn=die_with_parent
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _answers(f"{url}/api?token={token}"), "JupyterLab answers", 60.0)
        yield Lab(url, token, folder)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Playwright's handle on Chromium. Not for longer: Playwright keeps an event loop running in the tests' thread, in
    which no other test could run one of its own."""
    if not os.environ.get("CI"):
        pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'dagkit[dev]'")
    from playwright.sync_api import sync_playwright

    program = require("chromium", Path("/usr/bin"))
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=CHROMIUM_FLAGS)
        yield chromium
        chromium.close()


#: Opens a notebook in the place of all others, with the kernel that there is.
_OPEN = """async (path) => {
  const app = window.jupyterapp;
  await app.restored;
  for (const widget of [...app.shell.widgets("main")]) widget.dispose();
  await app.serviceManager.sessions.refreshRunning();
  const { value } = app.serviceManager.sessions.running().next();
  const kernel = value?.kernel ? { id: value.kernel.id } : undefined;
  await app.commands.execute("docmanager:open", { path, factory: "Notebook", kernel });
}"""
#: Ends every kernel of the server, as a reboot would.
_SHUT_DOWN = """async () => window.jupyterapp.serviceManager.sessions.shutdownAll()"""
_READY = """() => document.querySelector("#jp-main-statusbar")?.innerText.includes("| Idle")"""


def execute(page: Any, number: int) -> None:
    """Run a cell by its place. What is typed before the kernel is there is forgotten: it is typed again."""
    prompt = page.locator(".jp-CodeCell").nth(number).locator(".jp-InputPrompt")
    before = prompt.text_content()
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        page.click(f".jp-CodeCell >> nth={number} >> .cm-content")
        page.keyboard.press("Control+Enter")
        try:
            page.wait_for_function(
                "([n, before]) => document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')[n].textContent !== before",
                arg=[number, before],
                timeout=3_000,
            )
        except _timeout():
            continue
        return
    pytest.fail(f"cell {number} does not run")


def _timeout() -> type[Exception]:
    from playwright import sync_api

    return sync_api.TimeoutError


class Desk:
    """A page of JupyterLab with one notebook in it, as somebody sits before it."""

    def __init__(self, page: Any, lab: Lab) -> None:
        self.page, self.lab, self.notebook = page, lab, ""
        self._numbers = itertools.count(1)
        page.set_default_timeout(30_000)
        page.goto(f"{lab.url}/lab?token={lab.token}&reset")
        page.wait_for_function("window.jupyterapp")

    def open(self, *cells: str, dark: bool = False, width: int = 1400) -> Any:
        """A new notebook of these cells; its page."""
        page = self.page
        page.set_viewport_size({"width": width, "height": 1150})
        page.emulate_media(color_scheme="dark" if dark else "light")
        page.evaluate("dark => { document.body.dataset.jpThemeLight = String(!dark); }", dark)
        self.notebook = f"watch-{next(self._numbers)}.ipynb"
        self.lab.write(self.notebook, *cells)
        page.evaluate(_OPEN, self.notebook)
        self.settle()
        return page

    def settle(self) -> None:
        """Wait until the kernel is there; a cell that is run before that is forgotten."""
        self.page.wait_for_function(_READY, timeout=60_000)

    def run(self, *numbers: int) -> None:
        """Execute cells by their place."""
        for number in numbers:
            execute(self.page, number)

    def save(self) -> Any:
        """Save the notebook; what is in the file."""
        self.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
        return nbformat.read(self.lab.folder / self.notebook, as_version=4)

    def reload(self) -> None:
        """Load the page anew, as somebody does who closed the browser."""
        self.page.goto(self.lab.page_of(self.notebook))
        self.settle()

    def shut_kernels_down(self) -> None:
        self.page.evaluate(_SHUT_DOWN)

    def restart_kernel(self) -> None:
        self.page.evaluate(
            "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart().then(() => null)"
        )
        self.settle()


@pytest.fixture(scope="module")
def desk(jupyter_lab: Lab, browser: Any) -> Iterator[Desk]:
    """One page for the tests of a module: to load JupyterLab takes longer than most of them."""
    page = browser.new_page()
    yield Desk(page, jupyter_lab)
    page.close()
