"""A real JupyterLab and a real Chromium: one of each for the session, on the loopback only."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from services.processes import die_with_parent, free_ports, require, wait_until

__all__ = ["CHROMIUM_FLAGS", "Lab", "browser", "jupyter_lab"]

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
